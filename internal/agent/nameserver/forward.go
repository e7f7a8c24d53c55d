package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// tryBound is how long one resolver is waited for, and forwardBound how long all of them: less than the
	// 5 seconds for which clients wait by default (resolv.conf(5)).
	tryBound     = 2 * time.Second
	forwardBound = 4500 * time.Millisecond
	// maxForwards questions are with resolvers at once; each has a socket. Further ones fail.
	maxForwards = 512
)

// forwarder asks the machine's resolvers.
type forwarder struct {
	resolvers *resolvers
	log       *slog.Logger
	slots     chan struct{}
	preferred atomic.Uint32 // counts up as resolvers fail: which one is asked first

	mu     sync.Mutex
	asking map[netip.AddrPort]bool // our sockets that wait for a resolver's answer, and whether we got the question
	away   bool                    // the last question got no answer
}

func newForwarder(c Config) *forwarder {
	return &forwarder{
		resolvers: newResolvers(c),
		log:       c.Log,
		slots:     make(chan struct{}, maxForwards),
		asking:    map[netip.AddrPort]bool{},
	}
}

// forward answers what a resolver answers, or SERVFAIL.
func (f *forwarder) forward(request *dns.Msg, from net.Addr) *dns.Msg {
	if f.cameBack(from) {
		return failure(request)
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return failure(request)
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardBound)
	defer cancel()
	reply, err := f.ask(ctx, request)
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

// ask goes from resolver to resolver, beginning with the one that answered last. A single one is asked twice,
// since a packet may be lost.
func (f *forwarder) ask(ctx context.Context, request *dns.Msg) (*dns.Msg, error) {
	resolvers, err := f.resolvers.current()
	if err != nil {
		return nil, err
	}
	var unwell *dns.Msg
	for range max(2, len(resolvers)) {
		preferred := f.preferred.Load()
		resolver := resolvers[preferred%uint32(len(resolvers))]
		reply, failed := f.exchange(ctx, request, resolver)
		switch {
		case failed != nil:
			err = fmt.Errorf("%s: %w", resolver, failed)
		case reply.Rcode != dns.RcodeServerFailure:
			return reply, nil
		default:
			unwell = reply
		}
		f.preferred.CompareAndSwap(preferred, preferred+1)
		if ctx.Err() != nil {
			break
		}
	}
	if unwell != nil {
		return unwell, nil
	}
	return nil, err
}

// exchange asks over UDP, and over TCP where the answer is too long for that.
func (f *forwarder) exchange(ctx context.Context, request *dns.Msg, resolver netip.AddrPort) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryBound)
	defer cancel()
	reply, err := f.exchangeOver(ctx, "udp", request, resolver)
	if err == nil && reply.Truncated {
		if whole, err := f.exchangeOver(ctx, "tcp", request, resolver); err == nil {
			return whole, nil
		}
	}
	return reply, err
}

// exchangeOver asks from a port and with an ID that nobody can guess, so that nobody else can answer.
func (f *forwarder) exchangeOver(ctx context.Context, network string, request *dns.Msg,
	resolver netip.AddrPort) (*dns.Msg, error) {
	question := request.Copy()
	question.Id = dns.Id()
	client := &dns.Client{Net: network, Timeout: tryBound}
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
	case err == nil && !answers(reply, question):
		return nil, errors.New("it answers another question")
	}
	return reply, err
}

var errLoop = errors.New("what weft-dp asks is redirected back to it: have the redirect rules leave out the user or " +
	"group that it runs as (weft-dp install transparent-proxy --proxy-user)")

func answers(reply, question *dns.Msg) bool {
	if !reply.Response || len(reply.Question) != 1 {
		return false
	}
	asked, answered := question.Question[0], reply.Question[0]
	return asked.Qtype == answered.Qtype && asked.Qclass == answered.Qclass &&
		strings.EqualFold(asked.Name, answered.Name)
}

// waits remembers a socket of ours until done, which says whether what was sent from it came back to us.
func (f *forwarder) waits(socket net.Addr) (done func() bool) {
	at := addressOf(socket)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking[at] = false
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		defer delete(f.asking, at)
		return f.asking[at]
	}
}

// cameBack says whether a question comes from a socket with which we wait for a resolver: to forward it again
// would go on without end.
func (f *forwarder) cameBack(from net.Addr) bool {
	at := addressOf(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ours := f.asking[at]
	if ours {
		f.asking[at] = true
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

// note says once that no resolver answers, and once that one does again.
func (f *forwarder) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && !f.away:
		f.log.Warn("names outside the mesh can't be resolved", "error", err)
	case err == nil && f.away:
		f.log.Info("names outside the mesh are resolved again")
	}
	f.away = err != nil
}
