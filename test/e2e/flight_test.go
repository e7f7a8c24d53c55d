package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"weft/internal/testwait"
)

// Requests in flight finish after the removal of their inbound: a slow response, and an open TCP connection.
func TestWhatIsInFlightOutlivesItsInbound(t *testing.T) {
	w := newWorld(t)
	w.apply(secured + "---\n" + timeoutPolicy(withoutTimeout))
	l, err := net.Listen("tcp", w.address(2)+":18080")
	if err != nil {
		t.Fatal(err)
	}
	requested, release := make(chan struct{}), make(chan struct{})
	slow := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(requested)
			<-release
		}
		io.WriteString(rw, "web-1")
	})}
	go slow.Serve(l)
	t.Cleanup(func() { slow.Close() })
	w.echo(2, 18081)
	dataplane := func(inbounds string) string {
		return "type: Dataplane\nmesh: default\nname: web-1\nlabels: {kuma.io/workload: web}\nnetworking:\n  " +
			"address: NET.2\n  inbound:" + inbounds
	}
	both := `
  - {port: 20080, servicePort: 18080, serviceAddress: NET.2, protocol: http, tags: {kuma.io/service: web}}
  - {port: 20081, servicePort: 18081, serviceAddress: NET.2, protocol: tcp, tags: {kuma.io/service: echo}}`
	other := `
  - {port: 20082, servicePort: 18082, serviceAddress: NET.2, protocol: http, tags: {kuma.io/service: other}}`
	w.proxy("default", "web-1", dataplane(both))
	w.proxy("default", "client", "type: Dataplane\nmesh: default\nname: client\nlabels: {kuma.io/workload: "+
		"client}\nnetworking:\n  address: NET.3\n  outbound:"+
		"\n  - {address: NET.3, port: 10001, tags: {kuma.io/service: web}}\n  - {address: NET.3, port: 10002, tags: "+
		"{kuma.io/service: echo}}")
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	conn, err := net.Dial("tcp", w.address(3)+":10002")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := says(conn, "weft"); err != nil {
		t.Fatal(err)
	}
	responded := make(chan error, 1)
	go func() {
		_, err := fetch(url + "slow")
		responded <- err
	}()
	testwait.Receive(t, "the slow request reaches the application", requested)

	holds := func() (n int) {
		clusters := w.page("web-1", "clusters")
		for _, application := range []string{":18080::", ":18081::"} {
			if strings.Contains(clusters, w.address(2)+application) {
				n++
			}
		}
		return n
	}
	if n := holds(); n != 2 {
		t.Fatalf("web-1's Envoy knows %d applications, want 2", n)
	}

	// The service has no endpoint on purpose: no other server could serve the requests in flight.
	w.apply(dataplane(strings.ReplaceAll(both, "{port", "{state: NotReady, port")))
	w.apply(dataplane(other))
	w.eventually("its Envoy has let go of both", func() error {
		if n := holds(); n > 0 {
			return fmt.Errorf("%d left", n)
		}
		return nil
	})
	if err := says(conn, "weft"); err != nil {
		t.Errorf("an open connection of bytes: %v", err)
	}
	close(release)
	if err := testwait.Receive(t, "the slow response arrives", responded); err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
}
