package inspect_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

var calledServices = []string{"web", "api", "db"}

func calledService(name string) resource.Any {
	o := kind.MeshServices.Make("default", name, kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
		Ports:    []kind.ServicePort{{Port: 80}, {Port: 81}}})
	o.Labels = map[string]string{"app": name}
	return o
}

// drawCaller returns a Dataplane with some outbounds, or one that may reach some services at their virtual IPs.
func drawCaller(t *rapid.T, name string) *resource.Object[kind.Dataplane] {
	service := rapid.SampledFrom(append(calledServices, "missing"))
	ref := func() kind.BackendRef {
		ref := kind.BackendRef{Kind: "MeshService", Port: rapid.SampledFrom([]uint32{0, 80, 81, 82}).Draw(t, "port")}
		if rapid.Bool().Draw(t, "by label") {
			ref.Labels = map[string]string{"app": service.Draw(t, "app")}
		} else {
			ref.Name = service.Draw(t, "service")
		}
		return ref
	}
	n := kind.Networking{Address: "10.0.0.1"}
	for i := range rapid.IntRange(0, 2).Draw(t, "outbounds") {
		out := kind.Outbound{Port: uint32(10_000 + i)}
		if rapid.Bool().Draw(t, "by tag") {
			out.Tags = map[string]string{kind.ServiceTag: service.Draw(t, "tag")}
		} else {
			out.BackendRef = new(ref())
		}
		n.Outbound = append(n.Outbound, out)
	}
	if rapid.Bool().Draw(t, "transparent") {
		n.TransparentProxying = &kind.TransparentProxying{}
		switch rapid.SampledFrom([]string{"all", "backends", "services", "none"}).Draw(t, "reach") {
		case "backends":
			n.TransparentProxying.ReachableBackends = &kind.ReachableBackends{Refs: []kind.BackendRef{ref()}}
		case "services":
			n.TransparentProxying.ReachableServices = []string{service.Draw(t, "reachable")}
		case "none":
			n.TransparentProxying.ReachableServices = []string{}
		}
	}
	return kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: n})
}

// callersByProxy returns what [inspect.Backing] has about the callers of a service, from the configuration of each
// proxy.
func callersByProxy(w *inspect.World, names []string, service string) (callers []string, transparent int) {
	r, callers := table.Eval(w.Snapshot), []string{}
	for _, name := range names {
		p := w.State.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: "default", Name: name})
		explicit, reached := false, false
		for _, out := range p.Outbounds {
			explicit = explicit || out.Destination.Service == service
		}
		for _, d := range w.State.Proxies.Reached.Get(r, p.Group.ReachKey()) {
			reached = reached || d.Service == service
		}
		switch {
		case explicit:
			callers = append(callers, name)
		case p.Group.Transparent && reached:
			transparent++
		}
	}
	return callers, transparent
}

// TestCallersAreThoseOfTheProxies: groups of Dataplanes that state the same have the callers that the configuration of
// each proxy has, and the pages are the whole list.
func TestCallersAreThoseOfTheProxies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var objects []resource.Any
		for _, name := range calledServices {
			objects = append(objects, calledService(name))
		}
		var names []string
		var last *resource.Object[kind.Dataplane]
		for i := range rapid.IntRange(0, 8).Draw(t, "proxies") {
			names = append(names, fmt.Sprint("dp-", i))
			if dp := drawCaller(t, names[i]); last == nil || rapid.Bool().Draw(t, "another") {
				last = dp
			}
			objects = append(objects, kind.Dataplanes.Make("default", names[i], last.Spec)) // equal ones are a group
		}
		w := world(objects...)
		size := rapid.IntRange(1, 3).Draw(t, "size")
		for _, service := range calledServices {
			key := state.ServiceKey{Mesh: "default", Name: service}
			all := w.Reports().BackingOf(key, inspect.CallersPage{})
			callers, transparent := callersByProxy(w, names, service)
			if !slices.Equal(all.Callers, callers) || all.Transparent != transparent {
				t.Fatalf("the callers of %s are %v and %d more, want %v and %d", service, all.Callers, all.Transparent,
					callers, transparent)
			}
			if all.CallersTotal != 0 || all.CallersNext != "" {
				t.Fatalf("the whole list has the fields of a page: %+v", all)
			}
			paged := []string{}
			for page := (inspect.CallersPage{Size: size}); ; page.After = all.CallersNext {
				all = w.Reports().BackingOf(key, page)
				paged = append(paged, all.Callers...)
				if len(all.Callers) > size || all.CallersTotal != len(callers) || all.Transparent != transparent {
					t.Fatalf("a page of %d of %s is %+v", size, service, all)
				}
				if all.CallersNext == "" {
					break
				}
			}
			if !slices.Equal(paged, callers) {
				t.Fatalf("the pages of the callers of %s are %v, want %v", service, paged, callers)
			}
		}
	})
}

// TestCallersDoNotCostTheirProxies: the callers of a service are found by one Dataplane of each group, whatever their
// number.
func TestCallersDoNotCostTheirProxies(t *testing.T) {
	objects := []resource.Any{calledService("web")}
	for i := range 100 {
		dp := kind.Dataplanes.Make("default", fmt.Sprint("dp-", i), kind.Dataplane{Networking: kind.Networking{
			Address: fmt.Sprint("10.0.0.", i), Outbound: []kind.Outbound{{Port: uint32(10_000 + i),
				BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "web"}}}}})
		objects = append(objects, dp)
	}
	w := world(objects...)
	groups := 0
	for group := range w.State.Tables.OutboundGroups(w.Snapshot, "default") {
		groups++
		if group.Size != 100 || group.First.Name != "dp-0" {
			t.Errorf("a group has %d Dataplanes, and the first is %s", group.Size, group.First.Name)
		}
	}
	if groups != 1 {
		t.Errorf("%d groups of Dataplanes with outbounds to the same service, want 1", groups)
	}
}
