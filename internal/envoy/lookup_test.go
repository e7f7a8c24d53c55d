package envoy

import (
	"net"
	"strings"
	"sync"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"github.com/miekg/dns"

	"weft/kind"
)

// agentResolver is the address of a resolver like the agent's. It resolves every external host name to 127.0.0.1.
var agentResolver = sync.OnceValues(func() (*net.UDPAddr, error) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		if q := request.Question[0]; q.Qtype == dns.TypeA && strings.HasSuffix(q.Name, kind.ExternalSuffix) {
			header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(reply) // the client may be gone
	})}
	go func() { _ = server.ActivateAndServe() }() // until the tests end
	return socket.LocalAddr().(*net.UDPAddr), nil
})

// withAgentResolver has an Envoy resolve names by agentResolver.
func withAgentResolver(t *testing.T, b *bootstrapv3.Bootstrap) *bootstrapv3.Bootstrap {
	t.Helper()
	at, err := agentResolver()
	if err != nil {
		t.Fatal(err)
	}
	b.TypedDnsResolverConfig = &corev3.TypedExtensionConfig{
		Name: "envoy.network.dns_resolver.cares",
		TypedConfig: toAny(
			&caresv3.CaresDnsResolverConfig{Resolvers: []*corev3.Address{socketAddress(at.IP.String(),
				uint32(at.Port))}}),
	}
	return b
}
