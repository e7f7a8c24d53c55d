package objects_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"k8s.io/client-go/rest"

	"weft/internal/kube/api"
	"weft/internal/kube/objects"
	"weft/internal/testwait"
)

// TestNodes: every address under which a Node forwards connections is one of a Node: those of its status, of both
// families, and those of its bridge and overlay in the network of its Pods. They follow the Nodes, and none is known
// before all were read.
func TestNodes(t *testing.T) {
	const node = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"%s","resourceVersion":"%d"},"spec":{"podCIDRs":` +
		`["10.244.%[2]d.0/24","fd00:%[2]d::/64"]},"status":{"addresses":[{"type":"Hostname","address":"%[1]s"},` +
		`{"type":"InternalIP","address":"192.0.2.%[2]d"},{"type":"InternalIP","address":"2001:db8::%[2]d"},` +
		`{"type":"ExternalIP","address":"198.51.100.%[2]d"}]}}`
	events, listed := make(chan string), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if request.URL.Query().Get("watch") == "" {
			<-listed
			fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[%s]}`,
				fmt.Sprintf(node, "one", 1))
			return
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-events:
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			case <-request.Context().Done():
				return
			}
		}
	}))
	client, err := api.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	nodes := objects.NewNodes()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); nodes.Run(ctx, client, nil) }()
	t.Cleanup(func() { cancel(); <-done; server.Close() })

	has := func(address string) (bool, bool) { return nodes.HasAddress(netip.MustParseAddr(address)) }
	if _, known := has("192.0.2.1"); known {
		t.Error("the Nodes are known before they were read")
	}
	close(listed)
	testwait.UntilTrue(t, "the Nodes are known", func() bool { _, known := has("192.0.2.1"); return known })
	for address, want := range map[string]bool{
		"192.0.2.1": true, "2001:db8::1": true, "198.51.100.1": true, "10.244.1.0": true, "10.244.1.1": true,
		"fd00:1::": true, "fd00:1::1": true, "10.244.1.2": false, "192.0.2.2": false,
	} {
		if is, known := has(address); is != want || !known {
			t.Errorf("%s: of a Node %t, known %t, want %t", address, is, known, want)
		}
	}
	events <- `{"type":"ADDED","object":` + fmt.Sprintf(node, "two", 2) + `}`
	testwait.UntilTrue(t, "the second one is known", func() bool { is, _ := has("10.244.2.1"); return is })
	events <- `{"type":"DELETED","object":` + fmt.Sprintf(node, "one", 1) + `}`
	testwait.UntilTrue(t, "the first one is gone", func() bool { is, _ := has("192.0.2.1"); return !is })
}
