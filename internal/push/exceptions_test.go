package push

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weft/internal/mirror"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// TestAnExceptionBelongsToOneProxy: a proxy whose Envoy rejects a policy gets its configuration without it. All others
// keep their group and the very resources of it. A write of the policy, and its removal, end the exception.
func TestAnExceptionBelongsToOneProxy(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	const cluster = "kri_msvc_default_default__web_8080"
	shared := func(version string) resource.Any {
		o := modifying("p", nil, map[string]string{"outbound": "out"})
		o.Envelope().Version = version
		return o
	}
	put(hub, web("web"), redirectedServer("web-1", "10.0.0.1"), redirectedServer("web-2", "10.0.0.2"), shared("1"))
	key := func(name string) state.ProxyKey { return state.ProxyKey{Mesh: mesh, Name: name} }
	statistics := func(name string) string {
		c, _ := patchedCluster(t, hub, name, cluster)
		return c.AltStatName
	}
	group := hub.state.Proxies.Proxy.Get(hub.reader(), key("web-2")).Group
	t.Cleanup(hub.Proxies.Watch(key("web-2"), func(*proxy.Proxy) {}))
	before, _ := hub.Inspector.config.group.shared.Value(group)
	published := hub.Proxies.sets.groups.open[group].set.Resources()
	except := func(version, state string) {
		put(hub, kind.DataplaneInsights.Make(mesh, "web-1", kind.DataplaneInsight{Exceptions: []kind.Exception{{
			Policy: kind.Cause{Kind: kind.MeshProxyPatches.Name, Name: "p"}, PolicyVersion: version, State: state}}}))
	}
	for _, c := range []struct {
		version, state, want string
	}{
		{"another", kind.ExceptionAlone, "out"}, {"1", kind.ExceptionTried, "out"}, {"1", kind.ExceptionEnded, "out"},
		{"1", kind.ExceptionJoint, ""}, {"1", kind.ExceptionAlone, ""},
	} {
		except(c.version, c.state)
		if got := statistics("web-1"); got != c.want {
			t.Errorf("with an exception %s from the version %s the proxy has %q, want %q", c.state, c.version, got,
				c.want)
		}
		if got := hub.state.Proxies.Proxy.Get(hub.reader(), key("web-2")).Group; got != group {
			t.Errorf("the exception of one proxy changes the group of another: %+v", got)
		}
		if now, _ := hub.Inspector.config.group.shared.Value(group); !slices.Equal(now, before) ||
			!slices.Equal(hub.Proxies.sets.groups.open[group].set.Resources(), published) {
			t.Error("the exception of one proxy has resources of others made again")
		}
	}
	put(hub, shared("2"))
	if got := statistics("web-1"); got != "out" {
		t.Errorf("the policy was written again, and the proxy has %q", got)
	}
	except("2", kind.ExceptionAlone)
	hub.Apply(mirror.Batch{Removed: []resource.Key{kind.MeshProxyPatches.Key(mesh, "p")}})
	if got := statistics("web-1") + statistics("web-2"); got != "" {
		t.Errorf("without the policy the proxies have %q", got)
	}
}

// TestAPolicyThatRestrictsIsNeverLeftOut also where an insight says otherwise.
func TestAPolicyThatRestrictsIsNeverLeftOut(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, redirectedServer("web-1", "10.0.0.1"),
		kind.MeshTrafficPermissions.Make(mesh, "all", kind.MeshTrafficPermission{}))
	key := state.ProxyKey{Mesh: mesh, Name: "web-1"}
	permissions := func() int {
		return len(hub.state.Proxies.PermissionsOf(hub.reader(), mesh, key, "8080"))
	}
	before := permissions()
	put(hub, kind.DataplaneInsights.Make(mesh, "web-1", kind.DataplaneInsight{Exceptions: []kind.Exception{{
		Policy: kind.Cause{Kind: kind.MeshTrafficPermissions.Name, Name: "all"}, State: kind.ExceptionAlone}, {
		Policy: kind.Cause{Kind: "MeshOfALaterRelease", Name: "all"}, State: kind.ExceptionAlone}}}))
	if after := permissions(); before != 1 || after != before {
		t.Errorf("%d permissions apply, and %d with an exception", before, after)
	}
	var restrictive []string
	for _, k := range kind.Policies() {
		if k.Restricts() {
			restrictive = append(restrictive, k.Describe().Name)
		}
	}
	slices.Sort(restrictive)
	const want = "[MeshPassthrough MeshRateLimit MeshTLS MeshTrafficPermission]"
	if got := fmt.Sprint(restrictive); got != want {
		t.Errorf("the kinds that restrict are %s, want %s", got, want)
	}
}

// rejectingEnvoy decides the exceptions of a proxy whose resources are made of all policies. It accepts a resource
// without the policies that it rejects.
type rejectingEnvoy struct {
	policies  []string            // in the order of their last write, the latest last
	rejects   map[string][]string // policies by resource
	always    bool                // whatever the resource is made of
	message   string
	decisions exceptionDecision
}

// run decides until nothing changes, and returns the policies that are left out and the number of steps.
func (e *rejectingEnvoy) run(t *testing.T) (leftOut []string, steps int) {
	e.decisions.versions = func(c kind.Cause) (resource.Meta, bool) {
		i := slices.Index(e.policies, c.Name)
		return resource.Meta{Version: "1", Modified: time.Unix(int64(i), 0)}, i >= 0
	}
	for ; ; steps++ {
		before := slices.Clone(e.decisions.exceptions)
		e.decisions.changed = nil
		for _, name := range slices.Sorted(maps.Keys(e.rejects)) {
			bad := slices.ContainsFunc(e.rejects[name], func(policy string) bool {
				return !e.decisions.excludes(kind.Cause{Kind: "MeshRetry", Name: policy})
			})
			if !bad && !e.always {
				continue
			}
			nack := &kind.NACK{Type: "route", Name: name, Version: fmt.Sprint(before), Message: e.message}
			for _, policy := range e.policies {
				nack.Causes = append(nack.Causes, kind.Cause{Kind: "MeshRetry", Name: policy})
			}
			e.decisions.decide(nack)
		}
		if slices.Equal(before, e.decisions.exceptions) {
			break
		}
		if steps > 100 {
			t.Fatal("the exceptions never come to an end")
		}
	}
	for _, x := range e.decisions.exceptions {
		if x.Excludes() && !slices.Contains(leftOut, x.Policy.Name) {
			leftOut = append(leftOut, x.Policy.Name)
		}
	}
	slices.Sort(leftOut)
	return leftOut, steps
}

func TestExceptionsFindTheCauseOfANACK(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("p%02d", i)
	}
	for _, c := range []struct {
		name  string
		envoy rejectingEnvoy
		want  string
		steps int
	}{
		{"the latest", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": {"p02"}}}, "[p02]", 1},
		{"the first", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": {"p00"}}}, "[p00]", 3},
		{"one of several resources", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": {"p01"},
			"b": {"p01"}, "c": {"p01"}}}, "[p01]", 2},
		{"another of each resource", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": {"p02"},
			"b": {"p00"}}}, "[p00 p02]", 3},
		{"two together", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": {"p00", "p01"}}},
			"[p00 p01 p02]", 4},
		{"none", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": nil}, always: true}, "[]", 5},
		{"an address", rejectingEnvoy{policies: many[:3], rejects: map[string][]string{"a": nil}, always: true,
			message: "cannot bind '127.0.0.1:80': Address already in use"}, "[]", 0},
	} {
		leftOut, steps := c.envoy.run(t)
		if got := fmt.Sprint(leftOut); got != c.want || steps != c.steps {
			t.Errorf("%s: %s are left out after %d steps, want %s after %d", c.name, got, steps, c.want, c.steps)
		}
	}
	everything := map[string][]string{}
	for i := range 500 {
		everything[fmt.Sprint(i)] = nil
	}
	hostile := rejectingEnvoy{policies: many, rejects: everything, always: true}
	_, steps := hostile.run(t)
	if n := len(hostile.decisions.exceptions); n > kind.MaxExceptions || steps > 2*kind.MaxExceptions {
		t.Errorf("an Envoy that rejects everything has %d exceptions after %d steps", n, steps)
	}
}

// TestCausesOfARouteArePoliciesThatRoute: what a MeshHTTPRoute makes leads back to it.
func TestCausesOfARouteArePoliciesThatRoute(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, kind.Meshes.Make("", mesh, kind.Mesh{}), kind.MeshServices.Make(mesh, "web", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
		Ports:    []kind.ServicePort{{Port: 8080, AppProtocol: kind.HTTP}}}), redirectedServer("web-1", "10.0.0.1"),
		kind.MeshHTTPRoutes.Make(mesh, "split", kind.MeshHTTPRoute{To: []kind.HTTPRouteTo{{
			TargetRef: kind.RoutedRef{Kind: "MeshService", Name: "web"},
			Rules: []kind.HTTPRouteRule{{Matches: []kind.HTTPMatch{{Path: &kind.PathMatch{Type: kind.PathRegex,
				Value: "/a.*"}}}}}}}}))
	causes := hub.Rows.Causes(state.ProxyKey{Mesh: mesh, Name: "web-1"}, xds.Route,
		"kri_msvc_default_default__web_8080")
	if want := (kind.Cause{Kind: kind.MeshHTTPRoutes.Name, Name: "split"}); !slices.Contains(causes, want) {
		t.Errorf("the causes of a route are %v", causes)
	}
}
