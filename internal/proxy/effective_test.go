package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func TestWorlds(t *testing.T) { graphtest.RunWorlds(t) }

// timeouts is a MeshTimeout of the mesh m with one item for each of the confs.
func timeouts(name string, target *kind.TargetRef, items ...kind.ToItem[kind.TimeoutConf]) resource.Any {
	return kind.MeshTimeouts.Make("m", name, kind.MeshTimeout{TargetRef: target, To: items})
}

// about is an item about destinations: "Mesh", or KIND NAME or KIND LABEL=VALUE, with a section after a colon.
func about(text string, conf kind.TimeoutConf) kind.ToItem[kind.TimeoutConf] {
	text, section, _ := strings.Cut(text, ":")
	of, which, _ := strings.Cut(text, " ")
	ref := kind.DestinationRef{Kind: of, SectionName: section}
	if label, value, found := strings.Cut(which, "="); found {
		ref.Labels = map[string]string{label: value}
	} else {
		ref.Name = which
	}
	return kind.ToItem[kind.TimeoutConf]{TargetRef: ref, Default: conf}
}

func seconds(n int) *kind.Duration {
	d := kind.Duration(n) * 1e9
	return &d
}

func idle(n int) kind.TimeoutConf    { return kind.TimeoutConf{IdleTimeout: seconds(n)} }
func connect(n int) kind.TimeoutConf { return kind.TimeoutConf{ConnectionTimeout: seconds(n)} }

// timeoutWorld is a mesh with the proxies web-1 and api-1 and services of each kind.
func timeoutWorld(rows ...resource.Any) *graph.State {
	ports := []kind.ServicePort{{Port: 80, Name: "http", AppProtocol: kind.HTTP}, {Port: 90}, {Port: 443, Name: "80"}}
	api := kind.MeshServices.Make("m", "api", kind.MeshService{Ports: ports})
	api.Labels = map[string]string{"team": "a"}
	db := kind.MeshServices.Make("m", "db", kind.MeshService{Ports: ports[:2]})
	many := kind.MeshMultiZoneServices.Make("m", "api", kind.MeshMultiZoneService{Ports: ports[:1]})
	outside := kind.MeshExternalServices.Make("m", "api", kind.MeshExternalService{
		Match: kind.ExternalMatch{Type: "HostnameGenerator", Port: 80, Protocol: kind.HTTP},
	})
	return policyWorld(append(rows, api, db, many, outside)...)
}

func destination(of service.DestinationKind, name string, port uint32) service.DestinationKey {
	key := service.DestinationKey{Kind: of, Mesh: "m", Service: name, Port: port}
	if of != service.MultiZoneService {
		key.Zone = "east"
	}
	return key
}

// TestEffectiveTimeouts: the items that are about a destination are merged in the order of precedence, and each field
// is from the last item that has it.
func TestEffectiveTimeouts(t *testing.T) {
	api80, api90 := destination(service.MeshService, "api", 80), destination(service.MeshService, "api", 90)
	api443, db := destination(service.MeshService, "api", 443), destination(service.MeshService, "db", 80)
	many, outside := destination(service.MultiZoneService, "api", 80), destination(service.ExternalService, "api", 80)
	for _, c := range []struct {
		name string
		rows []resource.Any
		to   service.DestinationKey
		want string
	}{
		{"no policy", nil, api80, `{}`},
		{"no item about it", []resource.Any{timeouts("p", nil, about("MeshService other", idle(1)))}, api80, `{}`},
		{"the whole mesh", []resource.Any{timeouts("p", nil, about("Mesh", idle(1)))}, outside, `idle 1 p[0]`},
		{"a service over the mesh", []resource.Any{
			timeouts("p", nil, about("MeshService api", idle(1)), about("Mesh", connect(2)), about("Mesh", idle(3)))},
			api80, `connect 2 p[1], idle 1 p[0]`},
		{"another service", []resource.Any{
			timeouts("p", nil, about("MeshService api", idle(1)), about("Mesh", idle(3)))}, db, `idle 3 p[1]`},
		{"the smaller name", []resource.Any{timeouts("aaa", nil, about("Mesh", idle(1))),
			timeouts("bbb", nil, about("Mesh", idle(2)))}, api80, `idle 1 aaa[0]`},
		{"a policy of some proxies", []resource.Any{timeouts("zz", dataplanes(map[string]string{"app": "web"}, ""),
			about("Mesh", idle(1))), timeouts("aa", nil, about("MeshService api", idle(2)))}, api80, `idle 1 zz[0]`},
		{"a port by its name", []resource.Any{timeouts("p", nil, about("MeshService api:http", idle(1)),
			about("MeshService api", idle(2)))}, api80, `idle 1 p[0]`},
		{"another port", []resource.Any{timeouts("p", nil, about("MeshService api:http", idle(1)),
			about("MeshService api", idle(2)))}, api90, `idle 2 p[1]`},
		{"a port by its number", []resource.Any{timeouts("p", nil, about("MeshService api:90", idle(1)))}, api90,
			`idle 1 p[0]`},
		{"a name that is the number of another port", []resource.Any{
			timeouts("p", nil, about("MeshService api:80", idle(1)))}, api443, `idle 1 p[0]`},
		{"a number that is the name of another port", []resource.Any{
			timeouts("p", nil, about("MeshService api:80", idle(1)))}, api80, `{}`},
		{"a port that is not there", []resource.Any{timeouts("p", nil, about("MeshService api:grpc", idle(1)))}, api80,
			`{}`},
		{"labels", []resource.Any{timeouts("p", nil, about("MeshService team=a", idle(1)))}, api90, `idle 1 p[0]`},
		{"labels that it lacks", []resource.Any{timeouts("p", nil, about("MeshService team=a", idle(1)))}, db, `{}`},
		{"the label of the zone", []resource.Any{timeouts("p", nil, about("MeshService kuma.io/zone=east", idle(1)))},
			db, `idle 1 p[0]`},
		{"the label of the name", []resource.Any{
			timeouts("p", nil, about("MeshMultiZoneService kuma.io/display-name=api", idle(1)))}, many, `idle 1 p[0]`},
		{"a MeshService is not a MeshMultiZoneService", []resource.Any{
			timeouts("p", nil, about("MeshService api", idle(1)))}, many, `{}`},
		{"a name in a policy of the zone", []resource.Any{ofZone(timeouts("p", nil, about("MeshService api", idle(1)),
			about("MeshMultiZoneService api", idle(2))))}, many, `idle 2 p[1]`},
		{"a name in a policy of the zone, for its own service", []resource.Any{ofZone(timeouts("p", nil,
			about("MeshService api", idle(1))))}, api80, `idle 1 p[0]`},
		{"a MeshExternalService", []resource.Any{timeouts("p", nil, about("MeshExternalService api", idle(1)))},
			outside, `idle 1 p[0]`},
		{"a service that is not there", []resource.Any{timeouts("p", nil, about("Mesh", idle(1)))},
			destination(service.MeshService, "gone", 80), `{}`},
		{"shadow", []resource.Any{shadow(timeouts("p", nil, about("Mesh", idle(1))))}, api80, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(c.rows...)
			r := table.Eval(s.Tables.DB.Snapshot())
			set := s.Proxies.Proxy.Get(r, dataplaneKey("web-1")).Group.Policies
			merged := s.Proxies.MergedConfs(r, proxy.EffectiveKey{Policies: set, Destination: c.to})
			if got := shown(s, r, set, c.to); got != c.want {
				t.Errorf("the effective timeouts are %s, want %s (%v)", got, c.want, merged)
			}
		})
	}
}

func ofZone(o resource.Any) resource.Any {
	o.Envelope().Labels = map[string]string{"kuma.io/origin": "zone", "kuma.io/zone": "east"}
	return o
}

func shadow(o resource.Any) resource.Any {
	o.Envelope().Labels = map[string]string{"kuma.io/effect": "shadow"}
	return o
}

// shown lists the values of the effective timeouts, each with the item that it is from.
func shown(s *graph.State, r *table.Reader, set proxy.PolicySet, to service.DestinationKey) string {
	merged, ok := s.Proxies.MergedConfs(r, proxy.EffectiveKey{Policies: set, Destination: to})[kind.MeshTimeouts.Name]
	if !ok {
		return s.Proxies.ConfsOf(r, set, to).String()
	}
	values := map[string]*kind.Duration{}
	conf := merged.Conf.(*kind.TimeoutConf)
	values["connectionTimeout"], values["idleTimeout"] = conf.ConnectionTimeout, conf.IdleTimeout
	var fields []string
	for path, origin := range merged.Origins.All() {
		text := path.String()
		name := strings.TrimSuffix(strings.TrimSuffix(text, "ionTimeout"), "Timeout")
		fields = append(fields, fmt.Sprintf("%s %d %s[%d]", name, *values[text]/1e9, origin.Policy.Name, origin.Part))
	}
	return strings.Join(fields, ", ")
}

// TestChangesOfTimeouts says for each change how many values of the stages it computes, and how many of them differ:
// the list of the mesh, the selections of the two proxies, the destination, and the effective confs of both sets.
func TestChangesOfTimeouts(t *testing.T) {
	web := dataplanes(map[string]string{"app": "web"}, "")
	all := timeouts("all", nil, about("Mesh", idle(1)))
	ofWeb := timeouts("web", web, about("MeshService api", idle(2)))
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"a conf", timeouts("web", web, about("MeshService api", idle(3))), "1/0 0/0 0/0 1/1"},
		{"a conf of the whole mesh that another policy overrides", timeouts("all", nil, about("Mesh", idle(3))),
			"1/0 0/0 0/0 2/1"},
		{"the same conf", timeouts("web", web, about("Mesh", idle(2))), "1/0 0/0 0/0 1/0"},
		{"the target of an item", timeouts("web", web, about("MeshService db", idle(2))), "1/0 0/0 0/0 1/1"},
		{"the status of an endpoint", serves("web-1", true), "0/0 0/0 0/0 0/0"},
		{"the status of a service", kind.MeshServiceStatuses.Make("m", "api", kind.MeshServiceStatus{}),
			"0/0 0/0 0/0 0/0"},
		{"the endpoints of a service", kind.MeshServices.Make("m", "db", kind.MeshService{State: "Available"}),
			"0/0 0/0 0/0 0/0"},
		{"a policy of no proxy", timeouts("new", dataplanes(map[string]string{"app": "new"}, ""),
			about("Mesh", idle(9))), "1/1 2/0 0/0 0/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(all, ofWeb)
			s.Proxies.Proxy.Pin(dataplaneKey("web-1"))
			s.Proxies.Proxy.Pin(dataplaneKey("api-1"))
			for _, key := range []state.ProxyKey{dataplaneKey("web-1"), dataplaneKey("api-1")} {
				p, _ := s.Proxies.Proxy.Value(key)
				s.Proxies.Effective.Pin(proxy.EffectiveKey{Policies: p.Group.Policies,
					Destination: destination(service.MeshService, "api", 80)})
			}
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			var got []string
			for _, name := range []string{s.Proxies.Policies.String(), s.Proxies.Selections.String(),
				s.Services.Targeted.String(), s.Proxies.Effective.String()} {
				got = append(got, fmt.Sprintf("%d/%d", stages[name].Recomputed, stages[name].Changed))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the stages computed and changed %s, want %s", got, c.want)
			}
		})
	}
}
