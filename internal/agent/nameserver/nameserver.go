// Package nameserver is the DNS server of one machine. It resolves the mesh's host names, and forwards all other
// queries to the machine's resolvers.
//
// Queries of every type for a host name of the mesh are resolved here and never forwarded. If there are no addresses of
// the type, the response is NODATA, never NXDOMAIN. All other names are forwarded, in every domain. Host names may
// change at any time, and stay while their source is disconnected.
package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

// loopback are the addresses at which the server listens.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

const (
	// maxUDP is the largest UDP message that a client may request (EDNS, RFC 6891). Other servers use 1,232 bytes
	// because of fragmentation, which loopback does not have.
	maxUDP = 4096
	// maxConnections is the maximum number of TCP connections at each address. Further ones wait until one has been
	// idle for some seconds.
	maxConnections = 128
)

// Config is the configuration of a [Server].
type Config struct {
	// Port on 127.0.0.1 and, if the machine has IPv6, on ::1; UDP and TCP.
	Port int
	// Resolvers get the queries for other names, in this order; empty: the resolvers of ResolvConf, which is read again
	// after a change.
	Resolvers  []netip.AddrPort
	ResolvConf string // the path; see resolv.conf(5)
	Log        *slog.Logger
}

// Server is a DNS server for one machine.
type Server struct {
	HostNames
	forwarder *forwarder
	config    Config
	servers   []*dns.Server
	turn      atomic.Uint32 // rotates the first of several addresses
}

// New returns a server without host names.
func New(c Config) *Server {
	return &Server{config: c, forwarder: newForwarder(c)}
}

// Listen binds the port.
func (s *Server) Listen() error {
	for _, ip := range loopback {
		_, err := s.listen(netip.AddrPortFrom(ip, uint16(s.config.Port)), s)
		if ip.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue // this machine has no IPv6
		}
		if err != nil {
			s.close()
			return err
		}
	}
	return nil
}

// listen binds an address for UDP and TCP, with any free port for port 0, and returns it.
func (s *Server) listen(at netip.AddrPort, handler dns.Handler) (netip.AddrPort, error) {
	packets, err := net.ListenPacket("udp", at.String())
	if err != nil {
		return at, err
	}
	at = addressOf(packets.LocalAddr())
	connections, err := net.Listen("tcp", at.String())
	if err != nil {
		packets.Close()
		return at, err
	}
	s.servers = append(s.servers,
		&dns.Server{PacketConn: packets, UDPSize: maxUDP, Handler: handler},
		&dns.Server{Listener: netutil.LimitListener(connections, maxConnections), Handler: handler})
	return at, nil
}

// close stops the running servers, and frees the ports of the others.
func (s *Server) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // no wait for queries in progress: clients retry
	for _, server := range s.servers {
		_ = server.ShutdownContext(ended)
		if server.PacketConn != nil {
			server.PacketConn.Close()
		} else {
			server.Listener.Close()
		}
	}
}

// Serve responds until ctx ends or one of its sockets fails. Call it once, after Listen.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.close)()
	defer s.close()
	ended := make(chan error, len(s.servers))
	for _, server := range s.servers {
		go func() { ended <- server.ActivateAndServe() }()
	}
	err := <-ended
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving DNS: %w", err)
}

// ServeDNS implements dns.Handler.
func (s *Server) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := s.reply(request, w.RemoteAddr())
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	finish(request, reply, udp)
	// On an error, the client is gone, or a resolver's response cannot be encoded.
	_ = w.WriteMsg(reply)
}

// finish adapts a response to its transport.
func finish(request, reply *dns.Msg, udp bool) {
	reply.Id, reply.Compress = request.Id, true
	if udp && reply.IsTsig() == nil { // a signed response must not change
		reply.Truncate(sizeOver(request))
	}
}

func (s *Server) reply(request *dns.Msg, from net.Addr) *dns.Msg {
	switch {
	case request.Opcode != dns.OpcodeQuery:
		return new(dns.Msg).SetRcode(request, dns.RcodeNotImplemented)
	case len(request.Question) != 1: // a message may end after its header, whatever its counters
		return new(dns.Msg).SetRcode(request, dns.RcodeFormatError)
	}
	if reply := s.respond(request); reply != nil {
		return reply
	}
	return s.forwarder.forward(request, from)
}

// sizeOver returns the maximum size of a response over UDP.
func sizeOver(request *dns.Msg) int {
	if opt := request.IsEdns0(); opt != nil {
		return int(min(max(opt.UDPSize(), dns.MinMsgSize), maxUDP))
	}
	return dns.MinMsgSize
}

// timeToLive is the time to live of all responses for host names of the mesh. A virtual IP lives as long as its
// service. Half a minute is the time for which a client may miss a service that it looked up too early.
const timeToLive = 30 * time.Second
