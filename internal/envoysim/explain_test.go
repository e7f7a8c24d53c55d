package envoysim_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
)

var update = flag.Bool("update", false, "rewrite the expectations under testdata")

// world is a mesh in the graph's nouns: the shared ones, and those of each proxy.
type world struct {
	Trust        identity.Trust
	Destinations []service.Destination
	Routes       []service.Route // of destinations whose traffic a policy routes
	Endpoints    []service.Endpoints
	Proxies      []scenarioProxy
	Requests     []request
	Evicted      []string // DNS SANs of the mesh's evicted instances
}

type scenarioProxy struct {
	Key       state.ProxyKey
	SpiffeID  string
	Captured  bool
	Listeners []proxy.InboundListener
	Outbounds []proxy.ExplicitOutbound
}

type request struct{ From, To, Method, Path string }

func (w *world) proxy(key state.ProxyKey) *scenarioProxy {
	for i := range w.Proxies {
		if w.Proxies[i].Key == key {
			return &w.Proxies[i]
		}
	}
	return nil
}

func (w *world) route(d *service.Destination) *service.Route {
	for i := range w.Routes {
		if w.Routes[i].Destination == d.Key {
			return &w.Routes[i]
		}
	}
	return service.RouteTo(d)
}

func (w *world) SpiffeIDs(key state.ProxyKey) kind.SpiffeIDs {
	return kind.SpiffeIDsOf(strings.Fields(w.proxy(key).SpiffeID)...)
}

func (w *world) Instance(key state.ProxyKey) string {
	return key.Name + "." + key.Mesh + ".east.dataplane.mesh.local"
}

func (w *world) ProxyAt(address string, port uint32) (state.ProxyKey, bool) {
	for _, p := range w.Proxies {
		for _, l := range p.Listeners {
			if l.Address == address && l.Port == port {
				return p.Key, true
			}
		}
	}
	return state.ProxyKey{}, false
}

func (w *world) Egress(string, uint32) (state.ProxyKey, bool) { return state.ProxyKey{}, false }

func (w *world) Rejection(state.ProxyKey, envoysim.Address) (string, bool) { return "", false }

func (w *world) Exclusions(state.ProxyKey) []envoysim.Exclusion { return nil }

func (w *world) IngressAt(string, uint32) (envoysim.ZoneIngress, bool) {
	return envoysim.ZoneIngress{}, false
}

func (w *world) Config(key state.ProxyKey) ([]*xds.Resource, bool) {
	p := w.proxy(key)
	if p == nil {
		return nil, false
	}
	secured := p.SpiffeID != ""
	resources := []*xds.Resource{envoy.TrustBundle(&w.Trust)}
	for i := range w.Destinations {
		d := &w.Destinations[i]
		resources = append(resources, envoy.Clusters(d, secured, identity.Source{})...)
		if route := envoy.Route(w.route(d)); route != nil {
			resources = append(resources, route)
		}
		if p.Captured {
			resources = append(resources, envoy.VIPListeners(d, w.route(d), "DualStack", "")...)
		}
	}
	for i := range w.Endpoints {
		resources = append(resources, envoy.Assignment(&w.Endpoints[i]))
	}
	for i := range p.Listeners {
		p.Listeners[i].Mesh = key.Mesh
		l := &p.Listeners[i]
		resources = append(resources, envoy.NewInboundParts(l.Settings(secured)).Inbound(l)...)
	}
	resources = append(resources, envoy.EvictionFilters(key.Mesh, w.Evicted)...)
	for i := range p.Outbounds {
		for j := range w.Destinations {
			if d := &w.Destinations[j]; d.Key == p.Outbounds[i].Destination {
				resources = append(resources, envoy.ExplicitListener(&p.Outbounds[i], w.route(d)))
			}
		}
	}
	if p.Captured {
		resources = append(resources,
			envoy.Capture(&proxy.Capture{InboundPort: 15006, OutboundPort: 15001, IPFamilies: "DualStack"})...)
	}
	return resources, true
}

func (w *world) explanations() string {
	var out strings.Builder
	for i, q := range w.Requests {
		if i > 0 {
			fmt.Fprintln(&out)
		}
		mesh, name, _ := strings.Cut(q.From, ".")
		explanation, err := envoysim.Explain(w, envoysim.Request{
			From: state.ProxyKey{Mesh: mesh, Name: name}, To: q.To, Method: q.Method, Path: q.Path,
		}, nil)
		if err != nil {
			fmt.Fprintf(&out, "error: %v\n", err)
			continue
		}
		fmt.Fprint(&out, explanation.Text())
	}
	return out.String()
}

// Each file under testdata is a mesh with requests and their expected explanations.
func TestExplain(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios under testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { testScenario(t, path) })
	}
}

func testScenario(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) != 2 || archive.Files[0].Name != "world.yaml" || archive.Files[1].Name != "explanations" {
		t.Fatalf("%s: want the files world.yaml and explanations", path)
	}
	var w world
	if err := yaml.UnmarshalStrict(archive.Files[0].Data, &w); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	got := w.explanations()
	if *update {
		archive.Files[1].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
		t.Errorf("the explanations have changed (-golden +now). Understand why, then run with -update.\n%s", diff)
	}
}
