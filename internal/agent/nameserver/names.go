package nameserver

import (
	"net/netip"
	"sync"

	"github.com/miekg/dns"
)

// HostNames are the host names of the mesh with their addresses. The zero value is empty.
type HostNames struct {
	mu        sync.RWMutex
	addresses map[string][]netip.Addr // by [dns.CanonicalName]
}

// Name is a host name with its addresses, which may be none.
type Name struct {
	Host      string
	Addresses []netip.Addr
}

// Replace replaces all host names.
func (n *HostNames) Replace(names []Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = nil
	n.put(names)
}

// Change adds or replaces some host names, and removes others.
func (n *HostNames) Change(put []Name, removed []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, host := range removed {
		delete(n.addresses, dns.CanonicalName(host))
	}
	n.put(put)
}

func (n *HostNames) put(names []Name) {
	if n.addresses == nil {
		n.addresses = make(map[string][]netip.Addr, len(names))
	}
	for _, name := range names {
		n.addresses[dns.CanonicalName(name.Host)] = name.Addresses
	}
}

// find returns the addresses of a host name of the mesh. The caller must not change them.
func (n *HostNames) find(host string) (addresses []netip.Addr, ours bool) {
	host = dns.CanonicalName(host)
	n.mu.RLock()
	defer n.mu.RUnlock()
	addresses, ours = n.addresses[host]
	return addresses, ours
}

// respond returns the response to a query for a host name of the mesh, or nil for another name.
func (s *Server) respond(request *dns.Msg) *dns.Msg {
	question := request.Question[0]
	if question.Qclass != dns.ClassINET {
		return nil
	}
	addresses, ours := s.find(question.Name)
	if !ours {
		return nil
	}
	reply := new(dns.Msg).SetReply(request)
	reply.Authoritative, reply.RecursionAvailable = true, true
	if opt := request.IsEdns0(); opt != nil {
		reply.SetEdns0(maxUDP, opt.Do())
		if opt.Version() != 0 {
			reply.Rcode = dns.RcodeBadVers
			return reply
		}
	}
	reply.Answer = s.records(question, addresses)
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{authority(question.Name)}
	}
	return reply
}

// records returns the addresses of the queried type. Each call starts with another one, so that clients that use the
// first one are spread.
func (s *Server) records(question dns.Question, addresses []netip.Addr) []dns.RR {
	var records []dns.RR
	first := 0
	if len(addresses) > 1 {
		first = int(s.turn.Add(1) % uint32(len(addresses)))
	}
	for i := range addresses {
		address := addresses[(first+i)%len(addresses)]
		switch {
		case question.Qtype == dns.TypeA && address.Is4():
			records = append(records, &dns.A{Hdr: header(question.Name, dns.TypeA), A: address.AsSlice()})
		case question.Qtype == dns.TypeAAAA && address.Is6():
			records = append(records, &dns.AAAA{Hdr: header(question.Name, dns.TypeAAAA), AAAA: address.AsSlice()})
		}
	}
	return records
}

// authority returns the SOA record of a response without addresses, with its time to live (RFC 2308). Each host name of
// the mesh is a zone of its own.
func authority(name string) dns.RR {
	seconds := uint32(timeToLive.Seconds())
	return &dns.SOA{
		Hdr: header(name, dns.TypeSOA), Ns: name, Mbox: "hostmaster." + name,
		Serial: 1, Refresh: seconds, Retry: seconds, Expire: seconds, Minttl: seconds,
	}
}

func header(name string, of uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: of, Class: dns.ClassINET, Ttl: uint32(timeToLive.Seconds())}
}
