package envoy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// nouns is the input of a golden. Each field that is present becomes configuration.
type nouns struct {
	Secured     bool
	Source      identity.Source
	Families    kind.IPFamilies
	Destination *service.Destination
	Route       *service.Route // absent: the one of a destination that no policy routes
	Endpoints   *service.Endpoints
	Inbound     *proxy.InboundListener
	Explicit    *proxy.ExplicitOutbound
	Capture     *proxy.Capture
	Trust       *identity.Trust
	Ingress     *proxy.IngressListener
	Evicted     []string
	SNIRoute    string
	Sent        service.Effective // by a zone proxy, of SNIRoute or External
	Received    proxy.Confs       // of External
	Forwardable []service.Endpoint
	Egress      *proxy.EgressListener
	Chains      []proxy.EgressChain
	External    *zoneproxy.ExternalUpstream
}

func (n *nouns) route() *service.Route {
	if n.Route != nil {
		return n.Route
	}
	return service.RouteTo(n.Destination).WithConfs(n.Destination.Effective)
}

func (n *nouns) resources() []*xds.Resource {
	var all []*xds.Resource
	if d := n.Destination; d != nil {
		all = append(all, Clusters(d, n.Secured, n.Source)...)
		all = append(append(all, SNIProxies(n.route())...), Route(n.route()))
		all = append(all, VIPListeners(d, n.route(), n.Families, "")...)
	}
	if n.Endpoints != nil {
		all = append(all, Assignment(n.Endpoints))
	}
	if n.Inbound != nil {
		all = append(all, inboundOf(n.Inbound, n.Secured)...)
		if n.Secured {
			all = append(all, EvictionFilters(n.Inbound.Mesh, n.Evicted)...)
		}
	}
	if n.Explicit != nil {
		all = append(all, ExplicitListener(n.Explicit, n.route(), n.route().SNIs()...))
	}
	if n.Capture != nil {
		all = append(all, Capture(n.Capture)...)
	}
	if n.Ingress != nil {
		all = append(all, Ingress(n.Ingress)...)
	}
	if n.SNIRoute != "" {
		all = append(all, ClusterOfSNIRoute(n.SNIRoute, n.Sent), EndpointsOfSNIRoute(n.SNIRoute, n.Forwardable))
	}
	if n.Source.FromSPIRE() {
		all = append(all, SPIREAgent(n.Source))
	}
	if n.Egress != nil {
		all = append(all, Egress(n.Egress, identity.Source{}, n.Chains)...)
	}
	for i := range n.Chains {
		all = append(all, ChainResources(&n.Chains[i])...)
	}
	if len(n.Chains) > 0 {
		all = append(all, EvictionFilters(n.Chains[0].Key.Mesh, n.Evicted)...)
	}
	if n.External != nil {
		all = append(all, externalResources(n.External, n.Received, n.Sent)...)
	}
	if n.Trust != nil {
		all = append(append(all, TrustBundle(n.Trust)), DomainBundles(n.Trust)...)
	}
	return all
}

// goldens returns the files under testdata by name. Each new file is a test.
func goldens(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens under testdata: %v", err)
	}
	files := map[string]string{}
	for _, path := range paths {
		files[strings.TrimSuffix(filepath.Base(path), ".txtar")] = path
	}
	return files
}

// readGolden returns the resources of a golden.
func readGolden(t *testing.T, path string) []*xds.Resource {
	t.Helper()
	scenario, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return generate(t, scenario)
}

// generate returns the resources of a scenario's input.
func generate(t *testing.T, scenario *txtar.Archive) []*xds.Resource {
	t.Helper()
	input := golden.Section(scenario, "input.yaml")
	if input == "" {
		t.Fatal("a golden has its input in the section input.yaml")
	}
	var n nouns
	unmarshal(t, input, &n)
	return n.resources()
}

func unmarshal(t *testing.T, text string, into *nouns) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		golden.Set(scenario, "envoy.yaml", render(t, generate(t, scenario)))
	})
}

// render writes resources in the order of their generation, each below its type and name.
func render(t *testing.T, resources []*xds.Resource) string {
	t.Helper()
	var out strings.Builder
	for _, r := range resources {
		raw, err := protojson.Marshal(message(t, r))
		if err != nil {
			t.Fatal(err)
		}
		body, err := yaml.JSONToYAML(raw)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "--- # %s %s\n%s", r.Type, r.Name, body)
	}
	return out.String()
}

func message(t *testing.T, r *xds.Resource) proto.Message {
	t.Helper()
	m, err := r.Message()
	if err != nil {
		t.Fatalf("%s %s: %v", r.Type, r.Name, err)
	}
	return m
}

// Equal nouns have equal versions, so a restarted control plane sends nothing. Rules are in maps, whose order must have
// no effect.
func TestVersionsAreStable(t *testing.T) {
	for name, path := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			versions := map[string]string{}
			for range 20 {
				resources := readGolden(t, path)
				for _, r := range resources {
					key := r.Type.String() + " " + r.Name
					if before := versions[key]; before != "" && before != r.Version {
						t.Fatalf("%s has version %s and %s for the same noun", key, before, r.Version)
					}
					versions[key] = r.Version
				}
			}
		})
	}
}

// externalResources returns all resources by which an egress reaches an external service.
func externalResources(o *zoneproxy.ExternalUpstream, confs proxy.Confs, sent service.Effective) []*xds.Resource {
	resources := ExternalUpstream(o, confs, sent, "")
	if o.Protocol.IsHTTP() {
		resources = slices.Insert(resources, 1, ExternalRoute(o, confs))
	}
	return resources
}

// withoutPolicies returns the resources by which an egress without policies reaches an external service.
func withoutPolicies(o *zoneproxy.ExternalUpstream) []*xds.Resource {
	return externalResources(o, proxy.Confs{}, service.Effective{})
}
