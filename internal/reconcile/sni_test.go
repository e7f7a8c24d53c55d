package reconcile

import (
	"testing"

	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// owned is a service as admit stores it.
func owned[S any](o *resource.Object[S], owner kind.Owner) *resource.Object[S] {
	o.Labels = map[string]string{kind.DisplayName: o.Name, kind.OriginLabel: kind.OriginGlobal}
	if !owner.Global() {
		o.Labels[kind.OriginLabel], o.Labels[kind.ZoneLabel] = kind.OriginZone, owner.Zone
	}
	return o
}

// TestServicesOfAnEarlierReleaseAreNamed: only what has no name is written, and only by its owner.
func TestServicesOfAnEarlierReleaseAreNamed(t *testing.T) {
	named := func(zone string) []kind.SNI {
		return []kind.SNI{{Value: sni.V1.Name(sni.Port{Kind: "MeshService", Mesh: "default", Zone: zone, Name: "web", Number: 80})}}
	}
	for name, test := range map[string]struct {
		owner kind.Owner
		names []kind.SNI
		asks  bool
		left  int // of the names
	}{
		"of an earlier release":          {kind.Owner{Zone: "east"}, nil, true, 0},
		"named":                          {kind.Owner{Zone: "east"}, named("east"), false, 1},
		"of a zone that was called west": {kind.Owner{Zone: "east"}, named("west"), true, 0},
		"of another zone":                {kind.Owner{Zone: "west"}, nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			rc := New(w.plan, nil, nil, nil)
			service := owned(kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80, SNIs: test.names}}}), test.owner)
			w.put(service)
			rc.Observe([]resource.Any{service}, nil, nil, w.now)
			unit := Unit{UnnamedUnit, "default", "MeshService/web"}
			if _, asks := rc.due[unit]; asks != test.asks {
				t.Errorf("asks %t, want %t", asks, test.asks)
			}
			steps, _ := w.plan.For(w.reader(), unit, w.now)
			if !test.asks || test.owner.Zone != "east" {
				return
			}
			if len(steps) != 1 || steps[0].Put == nil || len(kind.PortsOf(steps[0].Put)[0].SNIs) != test.left {
				t.Fatalf("the steps are %+v, want one write that leaves %d names", steps, test.left)
			}
		})
	}
}
