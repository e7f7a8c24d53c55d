// Package network has parts of a network for tests: a resolver whose records change, and a forwarder that
// counts its connections. They run in the process of the test, on sockets of the caller.
package network

import (
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Resolver is a DNS server over UDP. It counts the queries of each name. The TTL of its records is one second.
type Resolver struct {
	server *dns.Server

	mu      sync.Mutex
	records map[string][]string // by "name. TYPE"
	queries map[string]int
	silent  bool // it does not respond
}

// StartResolver serves a socket until [Resolver.Stop], without any record.
func StartResolver(socket net.PacketConn) *Resolver {
	r := &Resolver{records: map[string][]string{}, queries: map[string]int{}}
	r.server = &dns.Server{PacketConn: socket, Handler: r}
	go func() { _ = r.server.ActivateAndServe() }() // the error is that of Stop
	return r
}

// Stop closes the socket.
func (r *Resolver) Stop() { _ = r.server.Shutdown() }

// Silence has the resolver respond to no query, or to all again.
func (r *Resolver) Silence(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
}

// Set replaces the records of a name that have a type, such as "A".
func (r *Resolver) Set(name, of string, values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[name+". "+of] = values
}

// Times returns the number of queries for the records of a name that have a type.
func (r *Resolver) Times(name, of string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queries[name+". "+of]
}

// ServeDNS implements [dns.Handler].
func (r *Resolver) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := request.Question[0]
	key := strings.ToLower(q.Name) + " " + dns.TypeToString[q.Qtype]
	r.queries[key]++
	if r.silent {
		return
	}
	reply := new(dns.Msg).SetReply(request)
	for _, value := range r.records[key] {
		if rr, err := dns.NewRR(fmt.Sprintf("%s 1 IN %s %s", q.Name, dns.TypeToString[q.Qtype], value)); err == nil {
			reply.Answer = append(reply.Answer, rr)
		}
	}
	_ = w.WriteMsg(reply) // the client may be gone
}
