package envoy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"weft/internal/service"
	"weft/internal/xds"
	"weft/internal/zoneroute"
	"weft/kind"
)

// Envoy counts a response that the application breaks off as a failure to reach the endpoint. One alone ejects no
// endpoint.
func TestABrokenResponseEjectsNoEndpoint(t *testing.T) {
	var first, broken atomic.Int32
	url, _ := twoServers(t,
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/break" {
				first.Add(1)
				return
			}
			broken.Add(1)
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		func(http.ResponseWriter, *http.Request) {})
	for broken.Load() == 0 {
		response, err := http.Get(url + "break")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	before := first.Load()
	for range 20 {
		do(t, "GET", url)
	}
	if first.Load() == before {
		t.Error("the endpoint is ejected for one response that its application broke off")
	}
}

// An address that a caller writes into x-forwarded-for is not used as the caller's address.
func TestTheClientsAddressIsTheConnections(t *testing.T) {
	seen := make(chan http.Header, 1)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	t.Cleanup(app.Close)
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP)
	var resources []*xds.Resource
	for _, r := range inboundOf(in, false) {
		if r.Type == xds.Route {
			route := routeOf(t, in)
			route.RequestHeadersToAdd = []*corev3.HeaderValueOption{{
				Header: &corev3.HeaderValue{Key: "address", Value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"},
			}}
			r = routeResource(route)
		}
		resources = append(resources, r)
	}
	startEnvoy(t, resources...)
	for _, forwardedFor := range []string{"10.0.0.1", "203.0.113.7, 192.168.0.1"} {
		request, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address(in), nil)
		request.Header.Set("x-forwarded-for", forwardedFor)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		got := <-seen
		if got.Get("address") != "127.0.0.1" || got.Get("x-forwarded-for") != forwardedFor {
			t.Errorf("x-forwarded-for %q: Envoy takes %q for the client's address, and passes on %q", forwardedFor,
				got.Get("address"), got.Get("x-forwarded-for"))
		}
		if internal := got.Get("x-envoy-internal"); internal != "" {
			t.Errorf("x-forwarded-for %q: Envoy takes the request for an internal one", forwardedFor)
		}
	}
}

// A port with an inbound that does not read requests is dialed with HTTP/1.1, and no mark of an application is trusted
// there. From another zone, the handshake negotiates the version.
func TestHops(t *testing.T) {
	for name, c := range map[string]struct {
		protocol kind.Protocol
		servers  service.Servers
		want     string
	}{
		"TCP":                       {kind.TCP, service.Servers{}, "[] 1s 10m0s"},
		"within a zone":             {kind.HTTP, service.Servers{}, "[h2] 1s 10m0s"},
		"HTTP/2":                    {kind.GRPC, service.Servers{}, "[h2] 1s 10m0s"},
		"no inbound reads requests": {kind.HTTP, service.Servers{TCPInbound: true}, "[http/1.1] 1s 10m0s"},
		"another zone": {kind.HTTP, service.Servers{Zone: "west", Way: zoneroute.ByIngress},
			"[h2 http/1.1] 2s 10m0s"},
		"another zone, by an egress": {kind.HTTP, service.Servers{Zone: "west", Way: zoneroute.ByEgress},
			"[h2 http/1.1] 2s 15s"},
		"the same without an egress": {kind.HTTP, service.Servers{Zone: "west", Way: zoneroute.NoEgress},
			"[h2 http/1.1] 2s 15s"},
		"outside, through the egress": {kind.HTTP, service.Servers{Way: zoneroute.ByEgress}, "[h2] 2s 10m0s"},
	} {
		h := hopTo(c.protocol, &c.servers, &service.Effective{})
		if got := fmt.Sprint(h.alpn(), " ", h.attempt().AsDuration(), " ", h.connectionLife()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
