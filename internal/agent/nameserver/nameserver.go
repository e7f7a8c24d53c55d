// Package nameserver answers DNS on one machine: the mesh's host names from what it was told, and all others
// by asking the machine's resolvers.
//
// A name of the mesh is answered here for every type, so that none of it is asked of anybody else: where there
// are no addresses of a type, the answer is that there are none (NODATA), never that the name does not exist.
// A name that is not of the mesh is forwarded, in whichever domain it is. Names change at any time; nothing
// here depends on who tells them being there.
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

// loopback are the addresses at which it answers.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

const (
	// maxUDP is the largest message over UDP that a client may ask for (EDNS, RFC 6891). On loopback nothing
	// on the way is cut into fragments, which is why others stay at 1,232 bytes.
	maxUDP = 4096
	// maxConnections over TCP, at each address; more wait until one of them is idle for some seconds.
	maxConnections = 128
)

// Config says how a [Server] works.
type Config struct {
	// Port on 127.0.0.1 and, where the machine has IPv6, on ::1; UDP and TCP.
	Port int
	// Resolvers are asked for names that are not of the mesh, in this order; empty: those of ResolvConf, as
	// it stands at the time.
	Resolvers  []netip.AddrPort
	ResolvConf string // the path; see resolv.conf(5)
	Log        *slog.Logger
}

// Server is a DNS server.
type Server struct {
	HostNames
	forwarder *forwarder
	config    Config
	servers   []*dns.Server
	turn      atomic.Uint32 // which of several addresses is the first of the next answer
}

// New answers a server that knows no name yet.
func New(c Config) *Server {
	return &Server{config: c, forwarder: newForwarder(c)}
}

// Listen takes the port.
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

// listen takes an address over UDP and TCP, on any free port where that is 0, and returns it.
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

// close ends the servers that run, and frees the port of those that do not yet.
func (s *Server) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // nobody is waited for: whoever asks asks again
	for _, server := range s.servers {
		_ = server.ShutdownContext(ended)
		if server.PacketConn != nil {
			server.PacketConn.Close()
		} else {
			server.Listener.Close()
		}
	}
}

// Serve answers until ctx ends, or one of its sockets fails. It is called once, after Listen.
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
	return fmt.Errorf("answering DNS: %w", err)
}

// ServeDNS implements dns.Handler.
func (s *Server) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := s.reply(request, w.RemoteAddr())
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	finish(request, reply, udp)
	// Where this fails the client is gone, or a resolver's answer can't be written.
	_ = w.WriteMsg(reply)
}

// finish makes a reply fit what it is sent over.
func finish(request, reply *dns.Msg, udp bool) {
	reply.Id, reply.Compress = request.Id, true
	if udp && reply.IsTsig() == nil { // what is signed stays as it is
		reply.Truncate(sizeOver(request))
	}
}

func (s *Server) reply(request *dns.Msg, from net.Addr) *dns.Msg {
	switch {
	case request.Opcode != dns.OpcodeQuery:
		return new(dns.Msg).SetRcode(request, dns.RcodeNotImplemented)
	case len(request.Question) != 1: // of a message that ends after its header, whatever that counts
		return new(dns.Msg).SetRcode(request, dns.RcodeFormatError)
	}
	if reply := s.answer(request); reply != nil {
		return reply
	}
	return s.forwarder.forward(request, from)
}

// sizeOver is how long an answer over UDP may be.
func sizeOver(request *dns.Msg) int {
	if opt := request.IsEdns0(); opt != nil {
		return int(min(max(opt.UDPSize(), dns.MinMsgSize), maxUDP))
	}
	return dns.MinMsgSize
}

// timeToLive of every answer about a name of the mesh. A virtual IP stays as long as its service, so that
// longer would do for those; half a minute is how long a new service may be missed by who has asked for it
// too early.
const timeToLive = 30 * time.Second
