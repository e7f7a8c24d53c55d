package nameserver

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// hostsTimeToLive is the time to live of an address from the hosts file.
const hostsTimeToLive = 5 * time.Second

// ExternalConfig is the configuration of an [External].
type ExternalConfig struct {
	// Suffix is the end of the queried names, such as ".weft.invalid.", after the host name. Queries without it are
	// rejected.
	Suffix string
	// Resolvers, ResolvConf and Log are as in [Config]; the search domains of ResolvConf are used too.
	Resolvers  []netip.AddrPort
	ResolvConf string
	Hosts      string // the path; see hosts(5)
	// Local returns the reason for which an address is excluded, or "". It is called for each response.
	Local func(netip.Addr) string
	Log   *slog.Logger
}

// External resolves host names of external services for one Envoy. It excludes the addresses to which Envoy must not
// connect, from every resolver and in every response.
type External struct {
	server *Server
	config ExternalConfig

	mu     sync.Mutex
	logged map[string]bool // names whose excluded addresses were logged
}

// NewExternal returns a server that does not listen yet.
func NewExternal(c ExternalConfig) *External {
	return &External{
		server: New(Config{Resolvers: c.Resolvers, ResolvConf: c.ResolvConf, Log: c.Log}),
		config: c,
		logged: map[string]bool{},
	}
}

// Listen binds a free port of 127.0.0.1, UDP and TCP, and returns it.
func (e *External) Listen() (netip.AddrPort, error) {
	var err error
	for range 10 { // a port that is free for UDP may be in use for TCP
		var at netip.AddrPort
		if at, err = e.server.listen(netip.AddrPortFrom(loopback[0], 0), e); err == nil {
			return at, nil
		}
	}
	return netip.AddrPort{}, err
}

// Serve responds until ctx ends or one of its sockets fails. Call it once, after Listen.
func (e *External) Serve(ctx context.Context) error { return e.server.Serve(ctx) }

// ServeDNS implements [dns.Handler].
func (e *External) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := e.reply(request, w)
	finish(request, reply, w.RemoteAddr().Network() == "udp")
	_ = w.WriteMsg(reply) // on an error, the client is gone
}

func (e *External) reply(request *dns.Msg, w dns.ResponseWriter) *dns.Msg {
	if request.Opcode != dns.OpcodeQuery || len(request.Question) != 1 {
		return new(dns.Msg).SetRcode(request, dns.RcodeFormatError)
	}
	queried := request.Question[0]
	name, ours := strings.CutSuffix(dns.CanonicalName(queried.Name), e.config.Suffix)
	if !ours || name == "" || queried.Qclass != dns.ClassINET || queried.Qtype != dns.TypeA &&
		queried.Qtype != dns.TypeAAAA {
		return new(dns.Msg).SetRcode(request, dns.RcodeRefused)
	}
	found, rcode := e.lookUp(name, queried.Qtype, w.RemoteAddr())
	reply := new(dns.Msg).SetRcode(request, rcode)
	reply.RecursionAvailable = true
	for _, record := range found {
		if what := e.config.Local(record.address); what != "" {
			e.logExcluded(name, record.address, what)
			continue
		}
		reply.Answer = append(reply.Answer, record.under(queried.Name))
	}
	return reply
}

// externalRecord is one address of a host name.
type externalRecord struct {
	address netip.Addr
	seconds uint32
}

// under returns the record for the queried name.
func (r externalRecord) under(name string) dns.RR {
	if r.address.Is4() {
		return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: r.seconds},
			A: r.address.AsSlice()}
	}
	return &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: r.seconds},
		AAAA: r.address.AsSlice()}
}

// lookUp returns the addresses of one type: from the hosts file, or else from the resolvers, in each search domain for
// a short name. from is the client, or nil for this process.
func (e *External) lookUp(name string, of uint16, from net.Addr) (found []externalRecord, rcode int) {
	if known := e.inHosts(name); len(known) > 0 {
		for _, address := range known {
			if address.Is4() == (of == dns.TypeA) {
				found = append(found, externalRecord{address, uint32(hostsTimeToLive.Seconds())})
			}
		}
		return found, dns.RcodeSuccess
	}
	rcode = dns.RcodeNameError
	for _, candidate := range e.candidates(name) {
		question := new(dns.Msg).SetQuestion(candidate, of)
		question.SetEdns0(maxUDP, false)
		reply := e.server.forwarder.forward(question, from)
		if found = addressesIn(reply, of); len(found) > 0 {
			return found, dns.RcodeSuccess
		}
		if reply.Rcode != dns.RcodeNameError {
			rcode = reply.Rcode
		}
		if reply.Rcode != dns.RcodeNameError && reply.Rcode != dns.RcodeSuccess {
			break // a longer name would be wrong
		}
	}
	return nil, rcode
}

// candidates returns the full names to try for a name.
func (e *External) candidates(name string) []string {
	config, err := dns.ClientConfigFromFile(e.config.ResolvConf)
	if err != nil {
		return []string{dns.Fqdn(name)}
	}
	return config.NameList(name)
}

// addressesIn returns the addresses of one type in a resolver's response, which has the whole chain of aliases.
func addressesIn(reply *dns.Msg, of uint16) []externalRecord {
	var found []externalRecord
	least := ^uint32(0)
	for _, rr := range reply.Answer {
		least = min(least, rr.Header().Ttl)
		var raw []byte
		switch rr := rr.(type) {
		case *dns.A:
			raw = rr.A.To4()
		case *dns.AAAA:
			raw = rr.AAAA.To16()
		}
		if address, ok := netip.AddrFromSlice(raw); ok && rr.Header().Rrtype == of {
			found = append(found, externalRecord{address: address})
		}
	}
	for i := range found {
		found[i].seconds = least
	}
	return found
}

// inHosts returns the addresses of a name in the hosts file.
func (e *External) inHosts(name string) []netip.Addr {
	file, err := os.Open(e.config.Hosts)
	if err != nil {
		return nil
	}
	defer file.Close() // it was only read
	var found []netip.Addr
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		address, err := netip.ParseAddr(fields[0])
		for _, host := range fields[1:] {
			if err == nil && strings.EqualFold(strings.TrimSuffix(host, "."), name) {
				found = append(found, address)
				break
			}
		}
	}
	return found
}

// maxLogged bounds the number of names whose log entry is remembered.
const maxLogged = 1000

// logExcluded logs the first excluded address of each name.
func (e *External) logExcluded(name string, address netip.Addr, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logged[name] || len(e.logged) >= maxLogged {
		return
	}
	e.logged[name] = true
	e.config.Log.Warn("an address of an external service is left out: it is of no server outside the mesh", "name",
		name, "address", address, "is", what)
}
