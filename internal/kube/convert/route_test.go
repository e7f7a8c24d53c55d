package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/kind"
	"weft/resource"
)

// routeWorld has the objects of a scenario.
type routeWorld struct {
	services []*Service
	outside  map[string]bool // Services without a MeshService
	grants   []*ReferenceGrant
	routes   []*Route
}

func (w *routeWorld) add(t *testing.T, doc string) {
	raw, err := yaml.YAMLToJSON([]byte(doc))
	var named struct {
		Kind     string
		Metadata struct{ Labels map[string]string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &named)
	}
	if err != nil {
		t.Fatal(err)
	}
	switch named.Kind {
	case "Service":
		var service *Service
		if service, err = DecodeService(raw); err == nil {
			w.services = append(w.services, service)
			w.outside[service.Key()] = named.Metadata.Labels["outside"] != ""
		}
	case "ReferenceGrant":
		var grant *ReferenceGrant
		if grant, err = DecodeReferenceGrant(raw); err == nil {
			w.grants = append(w.grants, grant)
		}
	default:
		var route *Route
		if route, err = DecodeRoute(named.Kind)(raw); route != nil {
			w.routes = append(w.routes, route)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// routed returns the protocols that routes give the ports of a Service.
func (w *routeWorld) routed(service *Service) RoutedProtocols {
	var grants []*ReferenceGrant
	for _, g := range w.grants {
		if g.Namespace == service.Namespace {
			grants = append(grants, g)
		}
	}
	return RoutedProtocolsOf(service, w.routes, grants)
}

func (w *routeWorld) around() *RouteAround {
	find := func(key string) *Service {
		i := slices.IndexFunc(w.services, func(s *Service) bool { return s.Key() == key })
		if i < 0 {
			return nil
		}
		return w.services[i]
	}
	settings := &Settings{}
	return &RouteAround{
		HasService: func(key string) bool { return find(key) != nil },
		MeshService: func(key string) *resource.Object[kind.MeshService] {
			service := find(key)
			if service == nil || w.outside[key] {
				return nil
			}
			return settings.MeshService(service, &Namespace{}, nil, w.routed(service)).Object
		},
		Routed: func(string, uint32) bool { return false }, // MeshServices have the protocols already
		Grants: func(namespace string) (of []*ReferenceGrant) {
			for _, g := range w.grants {
				if g.Namespace == namespace {
					of = append(of, g)
				}
			}
			return of
		},
	}
}

// TestRoutes converts the routes of each scenario to MeshHTTPRoutes, MeshTCPRoutes and statuses.
func TestRoutes(t *testing.T) {
	golden.Run(t, "testdata/routes/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		w := &routeWorld{outside: map[string]bool{}}
		var text strings.Builder
		for doc := range strings.SplitSeq(golden.Section(scenario, "objects.yaml"), "\n---\n") {
			w.add(t, doc)
		}
		show := func(o resource.Any, spec any) {
			raw, err := yaml.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "%s\n%s", o.Key(), raw)
		}
		attached, converted := map[string][]AttachedRoute{}, map[*Route][]RouteParent{}
		var names []string
		for _, route := range w.routes {
			parents := ParentsOf(route, w.around())
			converted[route] = parents
			for i := range parents {
				name := route.AttachedName(&parents[i].Ref)
				attached[name] = append(attached[name], AttachedRoute{route, &parents[i]})
				names = append(names, name)
			}
		}
		slices.Sort(names)
		rejected := map[[2]string]Rejection{}
		for _, name := range slices.Compact(names) {
			a := AttachRoutes(name, attached[name])
			maps.Copy(rejected, a.Rejected)
			if a.HTTP != nil {
				show(a.HTTP, a.HTTP.Spec)
			}
			if a.TCP != nil {
				show(a.TCP, a.TCP.Spec)
			}
		}
		for _, route := range w.routes {
			for _, p := range StatusOf(route, converted[route], rejected).Parents {
				fmt.Fprintf(&text, "%s at %s:\n", route.RowKey(), p.ParentRef.Name)
				for _, c := range p.Conditions {
					fmt.Fprintf(&text, "  %s %s %s (%d): %s\n", c.Type, c.Status, c.Reason, c.ObservedGeneration,
						c.Message)
				}
			}
		}
		scenario.Files = []txtar.File{scenario.Files[0], {Name: "result", Data: []byte(text.String())}}
	})
}

// TestRouteStatusOfOthers: the entries of other controllers stay as they are, an entry of a former parent goes, and a
// condition keeps the time of its last transition while its status stays the same.
func TestRouteStatusOfOthers(t *testing.T) {
	const other = `{"controllerName":"example.com/gateway","parentRef":{"name":"gw"},"conditions":[],"unknown":1}`
	own := func(name, status, at string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"parentRef":{"name":%q},"controllerName":%q,"conditions":[{"type":`+
			`"Accepted","status":%q,"observedGeneration":1,"lastTransitionTime":%q,"reason":"r","message":"m"}]}`, name,
			RouteController, status, at))
	}
	wanted := &RouteStatus{Parents: []ParentStatus{{ParentRef: ParentRef{Name: "web"}, ControllerName: RouteController,
		Conditions: []RouteCondition{{Type: "Accepted", Status: "True", ObservedGeneration: 2, Reason: "r",
			Message: "m"}}}}}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ status, want string }{
		{"True", "2020-01-01T00:00:00Z"}, {"False", "2030-01-01T00:00:00Z"},
	} {
		parents, changed, err := wanted.Set([]json.RawMessage{own("gone", "True", "2020-01-01T00:00:00Z"),
			json.RawMessage(other), own("web", c.status, "2020-01-01T00:00:00Z")}, now)
		if err != nil || !changed || len(parents) != 2 || string(parents[0]) != other ||
			!strings.Contains(string(parents[1]), c.want) {
			t.Errorf("%s becomes %s, %v, %v", c.status, parents, changed, err)
		}
		if again, changed, err := wanted.Set(parents, now.Add(time.Hour)); changed || err != nil {
			t.Errorf("a second time: %s, %v", again, err)
		}
	}
}
