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

// hostsTimeToLive is how long an address from the hosts file may be remembered.
const hostsTimeToLive = 5 * time.Second

// ExternalConfig says how an [External] works.
type ExternalConfig struct {
	// Suffix ends the names that are asked for, such as ".weft.invalid."; the name itself is before it. Others are
	// refused.
	Suffix string
	// Resolvers, ResolvConf and Log are as in [Config]; the search domains of ResolvConf are used too.
	Resolvers  []netip.AddrPort
	ResolvConf string
	Hosts      string // the path; see hosts(5)
	// Local says what an address is that is left out of responses, and "" of others. It is called for each response.
	Local func(netip.Addr) string
	Log   *slog.Logger
}

// External resolves the names of servers outside the mesh for one Envoy, and leaves out the addresses to which it must
// not connect, whoever answers for the names and whatever they answered before.
type External struct {
	server *Server
	config ExternalConfig

	mu   sync.Mutex
	told map[string]bool // the names of which it was said that addresses are left out
}

// NewExternal returns one that does not listen yet.
func NewExternal(c ExternalConfig) *External {
	return &External{
		server: New(Config{Resolvers: c.Resolvers, ResolvConf: c.ResolvConf, Log: c.Log}),
		config: c,
		told:   map[string]bool{},
	}
}

// Listen takes a free port on 127.0.0.1, UDP and TCP, and returns it.
func (e *External) Listen() (netip.AddrPort, error) {
	var err error
	for range 10 { // the port that is free over UDP may be taken over TCP
		var at netip.AddrPort
		if at, err = e.server.listen(netip.AddrPortFrom(loopback[0], 0), e); err == nil {
			return at, nil
		}
	}
	return netip.AddrPort{}, err
}

// Serve responds until ctx ends, or one of its sockets fails. It is called once, after Listen.
func (e *External) Serve(ctx context.Context) error { return e.server.Serve(ctx) }

// ServeDNS implements [dns.Handler].
func (e *External) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := e.reply(request, w)
	finish(request, reply, w.RemoteAddr().Network() == "udp")
	_ = w.WriteMsg(reply) // where this fails the client is gone
}

func (e *External) reply(request *dns.Msg, w dns.ResponseWriter) *dns.Msg {
	if request.Opcode != dns.OpcodeQuery || len(request.Question) != 1 {
		return new(dns.Msg).SetRcode(request, dns.RcodeFormatError)
	}
	asked := request.Question[0]
	name, ours := strings.CutSuffix(dns.CanonicalName(asked.Name), e.config.Suffix)
	if !ours || name == "" || asked.Qclass != dns.ClassINET || asked.Qtype != dns.TypeA && asked.Qtype != dns.TypeAAAA {
		return new(dns.Msg).SetRcode(request, dns.RcodeRefused)
	}
	found, rcode := e.lookUp(name, asked.Qtype, w.RemoteAddr())
	reply := new(dns.Msg).SetRcode(request, rcode)
	reply.RecursionAvailable = true
	for _, record := range found {
		if what := e.config.Local(record.address); what != "" {
			e.tell(name, record.address, what)
			continue
		}
		reply.Answer = append(reply.Answer, record.under(asked.Name))
	}
	return reply
}

// externalRecord is one address of a name.
type externalRecord struct {
	address netip.Addr
	seconds uint32
}

// under returns the record under the name that was asked for.
func (r externalRecord) under(name string) dns.RR {
	if r.address.Is4() {
		return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: r.seconds},
			A: r.address.AsSlice()}
	}
	return &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: r.seconds},
		AAAA: r.address.AsSlice()}
}

// lookUp finds the addresses of one type: in the hosts file, else from the resolvers, in one search domain after the
// other where the name is a short one. from is the client; nil: this process itself.
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
			break // another name would be taken for this one
		}
	}
	return nil, rcode
}

// candidates are the full names for which a name may stand.
func (e *External) candidates(name string) []string {
	config, err := dns.ClientConfigFromFile(e.config.ResolvConf)
	if err != nil {
		return []string{dns.Fqdn(name)}
	}
	return config.NameList(name)
}

// addressesIn are those of one type in a resolver's response, which is its whole chain of aliases.
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

// inHosts are the addresses of a name in the hosts file.
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

// maxTold bounds what is remembered of names that were logged.
const maxTold = 1000

// tell logs once of each name that addresses of it are left out.
func (e *External) tell(name string, address netip.Addr, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told[name] || len(e.told) >= maxTold {
		return
	}
	e.told[name] = true
	e.config.Log.Warn("an address of an external service is left out: it is of no server outside the mesh", "name",
		name, "address", address, "is", what)
}
