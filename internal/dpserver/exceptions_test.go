package dpserver_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// xdsClient has the resources that it accepted. It rejects responses with a resource that rejects returns true for.
type xdsClient struct {
	p       *plane
	rejects func(*discoveryv3.Resource) bool

	mu        sync.Mutex
	accepted  map[string][]byte // the newest by name, of clusters
	responses int
	removed   int // of the names that it has
}

func (p *plane) client(name string, rejects func(*discoveryv3.Resource) bool) *xdsClient {
	p.t.Helper()
	c := &xdsClient{p: p, rejects: rejects, accepted: map[string][]byte{}}
	stream, err := p.discover(p.dataplaneToken(name), "default."+name)
	if err != nil {
		p.t.Fatal(err)
	}
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			if stream.Send(c.respond(response)) != nil {
				return
			}
		}
	}()
	return c
}

func (c *xdsClient) respond(response *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
	c.responses++
	for _, r := range response.Resources {
		if c.rejects(r) {
			request.ErrorDetail = &rpcstatus.Status{Message: "no"}
		} else if response.TypeUrl == xds.Cluster.URL() {
			c.accepted[r.Name] = r.Resource.Value
		}
	}
	for _, name := range response.RemovedResources {
		if _, has := c.accepted[name]; has {
			c.removed++
		}
	}
	return request
}

// has reports whether the client has accepted a cluster with a text.
func (c *xdsClient) has(cluster, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.accepted[cluster], []byte(text))
}

func (c *xdsClient) await(cluster, text string, want bool) {
	c.p.t.Helper()
	c.p.eventually(func() bool { return c.has(cluster, text) == want }, func() any {
		return fmt.Sprintf("the cluster %s has %q: %v, want %v", cluster, text, !want, want)
	})
}

// clusterPatch is a MeshProxyPatch that sets a field of the own clusters of all proxies.
func clusterPatch(name, value string) resource.Any {
	return kind.MeshProxyPatches.Make("default", name, kind.MeshProxyPatch{Default: kind.ProxyPatchConf{
		AppendModifications: []kind.Modification{{Cluster: &kind.ClusterModification{Operation: kind.PatchChange,
			Match: &kind.ClusterMatch{Origin: "inbound"}, Change: kind.Change{Value: value}}}}}})
}

// TestAPolicyThatOneProxyRejects is left out for this proxy alone, and no other one that may be the cause. A write of
// the policy ends that.
func TestAPolicyThatOneProxyRejects(t *testing.T) {
	second := kind.Dataplanes.Make("default", "web-2", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.2",
		Inbound: []kind.Inbound{{Port: 8080, Tags: map[string]string{kind.ServiceTag: "web"}}}}})
	p := newPlane(t, second, clusterPatch("guilty", "altStatName: guilty"),
		clusterPatch("innocent", "connectTimeout: 77s"))
	p.register()
	rejects := func(r *discoveryv3.Resource) bool { return bytes.Contains(r.Resource.Value, []byte("guilty")) }
	rejecting := p.client("web-1", rejects)
	other := p.client("web-2", func(*discoveryv3.Resource) bool { return false })
	const own, others = "self_inbound_10.0.0.1_8080", "self_inbound_10.0.0.2_8080"
	timeout := string([]byte{8, 77})
	excepted := func(state string) {
		t.Helper()
		stored(p, kind.DataplaneInsights, func(insight kind.DataplaneInsight) bool {
			if state == "" {
				return len(insight.Exceptions) == 0
			}
			return len(insight.Exceptions) == 1 && insight.Exceptions[0].State == state && len(insight.NACKs) == 0 &&
				insight.Exceptions[0].Policy == kind.Cause{Kind: kind.MeshProxyPatches.Name, Name: "guilty"}
		})
	}
	rejecting.await(own, timeout, true)
	excepted(kind.ExceptionAlone)
	other.await(others, "guilty", true)
	if rejecting.has(own, "guilty") || !rejecting.has(own, timeout) || !other.has(others, timeout) {
		t.Error("a proxy lacks more than the policy that it rejects")
	}

	p.put(clusterPatch("guilty", "altStatName: corrected"))
	rejecting.await(own, "corrected", true)
	excepted("")
	other.await(others, "corrected", true)
}

// TestATokenThatNACKsEverything: a client that rejects each resource stops no other client and has a bounded number of
// exceptions. Its insight is not written again and again.
func TestATokenThatNACKsEverything(t *testing.T) {
	given := []resource.Any{kind.Dataplanes.Make("default", "web-2", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.2", Inbound: []kind.Inbound{{Port: 8080, Tags: map[string]string{kind.ServiceTag: "web"}}}}})}
	for i := range 30 {
		given = append(given, clusterPatch(fmt.Sprint("p", i),
			fmt.Sprintf("metadata: {filterMetadata: {p%d: {a: b}}}", i)))
	}
	p := newPlane(t, given...)
	p.register()
	hostile := p.client("web-1", func(*discoveryv3.Resource) bool { return true })
	other := p.client("web-2", func(*discoveryv3.Resource) bool { return false })
	const others = "self_inbound_10.0.0.2_8080"
	other.await(others, "p29", true)
	stored(p, kind.DataplaneInsights, func(insight kind.DataplaneInsight) bool {
		return len(insight.Exceptions) == kind.MaxExceptions && len(insight.NACKs) > 0
	})
	hostile.mu.Lock()
	before := hostile.responses
	hostile.mu.Unlock()
	p.put(clusterPatch("p3", "altStatName: written"))
	other.await(others, "written", true)
	testwait.Pass(500*time.Millisecond, "in which further steps would follow")
	stored(p, kind.DataplaneInsights, func(insight kind.DataplaneInsight) bool {
		if n := len(insight.Exceptions); n > kind.MaxExceptions {
			t.Errorf("a client that rejects everything has %d exceptions", n)
		}
		return true
	})
	hostile.mu.Lock()
	defer hostile.mu.Unlock()
	if n := hostile.responses - before; n > 4*kind.MaxExceptions || before > 20*kind.MaxExceptions {
		t.Errorf("a client that rejects everything has %d responses, and %d after one write", before, n)
	}
	if other.removed > 0 {
		t.Errorf("%d resources of another client are removed", other.removed)
	}
}

// TestAnAgentLearnsOfARejectedListenerOfAService: the agent of a proxy that rejects a listener is sent Envoy's message,
// so that a proxy that starts is not ready, until the listener is accepted.
func TestAnAgentLearnsOfARejectedListenerOfAService(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run")
	var mu sync.Mutex
	accepts := false
	p.client("web-1", func(r *discoveryv3.Resource) bool {
		mu.Lock()
		defer mu.Unlock()
		return !accepts && r.Resource.TypeUrl == xds.Listener.URL()
	})
	p.settings(session, func(s *wire.Settings) bool { return strings.HasPrefix(s.Rejection, "listener self_inbound") })
	mu.Lock()
	accepts = true
	mu.Unlock()
	p.put(kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
		Inbound: []kind.Inbound{{Port: 8081, Tags: map[string]string{kind.ServiceTag: "web"}}}}}))
	p.settings(session, func(s *wire.Settings) bool { return s.Rejection == "" })
}
