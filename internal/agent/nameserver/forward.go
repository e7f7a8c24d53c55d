package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// tryBound bounds the wait for one resolver, and forwardBound the wait for all: less than the 5 seconds of clients'
	// default timeout (resolv.conf(5)).
	tryBound     = 2 * time.Second
	forwardBound = 4500 * time.Millisecond
	// maxForwards is the maximum number of queries at resolvers, each with a socket. Further queries fail.
	maxForwards = 512
)

// forwarder forwards queries to the machine's resolvers.
type forwarder struct {
	resolvers *resolvers
	log       *slog.Logger
	slots     chan struct{}
	each, all time.Duration // tryBound and forwardBound, or longer times of tests
	preferred atomic.Uint32 // index of the first resolver to try; a failure increments it

	mu sync.Mutex
	// our sockets that wait for a resolver's response, and whether our own query came back
	waiting map[netip.AddrPort]bool
	failed  bool // the last query had no response
}

func newForwarder(c Config) *forwarder {
	return &forwarder{
		resolvers: newResolvers(c),
		log:       c.Log,
		slots:     make(chan struct{}, maxForwards),
		each:      tryBound,
		all:       forwardBound,
		waiting:   map[netip.AddrPort]bool{},
	}
}

// forward returns a resolver's response, or SERVFAIL.
func (f *forwarder) forward(request *dns.Msg, from net.Addr) *dns.Msg {
	if f.loops(from) {
		return failure(request)
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return failure(request)
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.all)
	defer cancel()
	reply, err := f.query(ctx, request)
	f.note(err)
	if err != nil {
		return failure(request)
	}
	return reply
}

func failure(request *dns.Msg) *dns.Msg {
	reply := new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
	reply.RecursionAvailable = true
	if opt := request.IsEdns0(); opt != nil {
		reply.SetEdns0(maxUDP, opt.Do())
	}
	return reply
}

// query sends the request to each resolver in turn, beginning with the last one that worked, until one of them knows. A
// single resolver gets it twice, since a packet may be lost.
func (f *forwarder) query(ctx context.Context, request *dns.Msg) (*dns.Msg, error) {
	resolvers, err := f.resolvers.current()
	if err != nil {
		return nil, err
	}
	var unwell *dns.Msg
	preferred := f.preferred.Load()
	for i := range uint32(max(2, len(resolvers))) {
		at := preferred + i
		resolver := resolvers[at%uint32(len(resolvers))]
		reply, failed := f.exchange(ctx, request, resolver)
		switch {
		case failed != nil:
			err = fmt.Errorf("%s: %w", resolver, failed)
		case conclusive(reply):
			return reply, nil
		default:
			unwell = reply
		}
		// A resolver that rejects a query stays preferred: it may be the only one that knows other names, which the
		// next one would call nonexistent.
		if failed != nil || reply.Rcode == dns.RcodeServerFailure {
			f.preferred.CompareAndSwap(at, at+1)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if unwell != nil {
		return unwell, nil
	}
	return nil, err
}

// conclusive reports whether a resolver knows the name, or that there is none. The C libraries ask the next resolver in
// all other cases: after an error (codes 4 and 5), and after an empty response of a server that is neither a resolver
// nor has the name.
func conclusive(reply *dns.Msg) bool {
	switch reply.Rcode {
	case dns.RcodeNameError:
		return true
	case dns.RcodeSuccess:
		return reply.Authoritative || reply.RecursionAvailable || reply.Truncated || len(reply.Answer) > 0
	}
	return false
}

// exchange uses UDP, and TCP for a truncated response. A resolver without EDNS gets the query without it (RFC 6891,
// 7).
func (f *forwarder) exchange(ctx context.Context, request *dns.Msg, resolver netip.AddrPort) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, f.each)
	defer cancel()
	reply, err := f.exchangeOver(ctx, "udp", request, resolver)
	if err == nil && lacksEDNS(reply) && request.IsEdns0() != nil {
		request = withoutEDNS(request)
		reply, err = f.exchangeOver(ctx, "udp", request, resolver)
	}
	if err == nil && reply.Truncated {
		if whole, err := f.exchangeOver(ctx, "tcp", request, resolver); err == nil {
			return whole, nil
		}
	}
	return reply, err
}

// lacksEDNS reports whether a response is that of a resolver which does not implement EDNS.
func lacksEDNS(reply *dns.Msg) bool {
	return reply.IsEdns0() == nil && (reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented)
}

func withoutEDNS(request *dns.Msg) *dns.Msg {
	plain := request.Copy()
	plain.Extra = slices.DeleteFunc(plain.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT })
	return plain
}

// exchangeOver sends from a random port with a random ID, so that only the resolver can produce a matching response.
func (f *forwarder) exchangeOver(ctx context.Context, network string, request *dns.Msg,
	resolver netip.AddrPort) (*dns.Msg, error) {
	question := request.Copy()
	question.Id = dns.Id()
	client := &dns.Client{Net: network, Timeout: f.each}
	conn, err := client.DialContext(ctx, resolver.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	done := f.waits(conn.LocalAddr())
	reply, _, err := client.ExchangeWithConnContext(ctx, question, conn)
	switch {
	case done():
		return nil, errLoop
	case err == nil && !matches(reply, question):
		return nil, errors.New("the response is to another question")
	}
	return reply, err
}

var errLoop = errors.New("what weft-dp asks is redirected back to it: have the redirect rules leave out the user or " +
	"group that it runs as (weft-dp install transparent-proxy --proxy-user)")

// matches reports whether a reply is the response to a query: it has the same question.
func matches(reply, question *dns.Msg) bool {
	if !reply.Response || len(reply.Question) != 1 {
		return false
	}
	sent, replied := question.Question[0], reply.Question[0]
	return sent.Qtype == replied.Qtype && sent.Qclass == replied.Qclass && strings.EqualFold(sent.Name, replied.Name)
}

// waits records a waiting socket of ours until done, which reports whether its own query came back to us.
func (f *forwarder) waits(socket net.Addr) (done func() bool) {
	at := addressOf(socket)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[at] = false
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		defer delete(f.waiting, at)
		return f.waiting[at]
	}
}

// loops reports whether a query comes from a waiting socket of ours. Forwarding it again would loop.
func (f *forwarder) loops(from net.Addr) bool {
	at := addressOf(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ours := f.waiting[at]
	if ours {
		f.waiting[at] = true
	}
	return ours
}

func addressOf(a net.Addr) netip.AddrPort {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		at = a.AddrPort()
	case *net.TCPAddr:
		at = a.AddrPort()
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// note logs the first failure of all resolvers, and the first success after it.
func (f *forwarder) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && !f.failed:
		f.log.Warn("names outside the mesh can't be resolved", "error", err)
	case err == nil && f.failed:
		f.log.Info("names outside the mesh are resolved again")
	}
	f.failed = err != nil
}
