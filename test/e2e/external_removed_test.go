package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// slowOutside is an external server. The first request to /long is complete when the test closes release.
type slowOutside struct {
	served         atomic.Int64 // complete responses, other than to /long
	begun, release chan struct{}
}

func (o *slowOutside) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/long" {
		close(o.begun)
		<-o.release
		fmt.Fprint(rw, "long")
		return
	}
	o.served.Add(1)
	fmt.Fprint(rw, "outside")
}

// A removed external service is served by the egresses until its clients have acked the removal: a client that gets the
// removal late loses no request, and requests in flight finish. Permissions apply at once meanwhile.
func TestARemovedExternalServiceDrains(t *testing.T) {
	w := newWorld(t)
	outside := &slowOutside{begun: make(chan struct{}), release: make(chan struct{})}
	server := &http.Server{Handler: outside}
	go server.Serve(w.listen(50, 18090))
	t.Cleanup(func() { server.Close() })
	w.apply(withIdentity + external("plain", "http", 80, "{address: NET.50, port: 18090}", "") + lettingOut("client") +
		"---\n" + timeoutPolicy(withoutTimeout))
	w.proxy("default", "egress-1", egress("egress-1", 20))
	client := w.proxy("default", "client", externalCaller("client", 8))
	url := w.out(8, 10001)
	w.responds(fetch, url, "outside")
	long := make(chan error, 1)
	go func() {
		_, err := traffic.Post(url + "long")(t.Context())
		long <- err
	}()
	testwait.Receive(t, "the long request reaches the server", outside.begun)

	d := w.drill("an external service is removed, and a client does not know yet", traffic.Get(url))
	d.more(20)
	client.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { client.Signal(syscall.SIGCONT) })
	if out, err := w.weft("delete", "meshexternalservice", "plain"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.eventually("the removal is published", func() error { return w.lacks("client", "extsvc") })
	d.more(50) // the egress waits 30 s for the ack of the client
	d.end()
	w.apply(lettingOut("other"))
	w.eventually("the permissions apply to the removed service", func() error { return w.denied(url) })
	w.apply(lettingOut("client"))
	w.eventually("the client is allowed again", func() error { return get(url) })

	before := outside.served.Load()
	late := beside.Start(w.get(url))
	client.Signal(syscall.SIGCONT)
	w.eventually("the client has no outbound any more", func() error { return w.closed(w.address(8) + ":10001") })
	tally := late.Stop()
	responses := int64(0)
	for _, n := range tally.Responses {
		responses += int64(n)
	}
	if served := outside.served.Load() - before; served != responses {
		t.Errorf("the server has responded to %d requests, and the client got %d responses", served, responses)
	}
	// A connection that the closed listener had not accepted yet is reset by the kernel.
	isNew := func(cause string) bool {
		return strings.Contains(cause, "connection refused") || strings.Contains(cause, "connection reset by peer")
	}
	for cause := range tally.Failed {
		if !isNew(cause) && !strings.HasPrefix(cause, "503") {
			t.Errorf("new requests fail with %q", cause)
		}
	}
	close(outside.release)
	if err := testwait.Receive(t, "the long response arrives", long); err != nil {
		t.Errorf("a request in flight: %v", err)
	}
	w.eventually("the egress has drained the service", func() error { return w.lacks("egress-1", "extsvc") })
}

// lacks returns nil once the configuration for a proxy does not contain a text.
func (w *world) lacks(proxy, text string) error {
	config, err := w.api("/meshes/default/dataplanes/" + proxy + "/_snapshot")
	if err == nil && strings.Contains(config, text) {
		err = fmt.Errorf("the configuration of %s contains %q", proxy, text)
	}
	return err
}
