package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft/internal/graph"
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

var east = kind.Owner{Zone: "east"}

// nameOf is the name of port 80 of the MeshService web.
func nameOf(format sni.Format, zone string) string {
	return format.Name(sni.Port{Kind: "MeshService", Mesh: "default", Zone: zone, Name: "web", Number: 80})
}

func webOf(owner kind.Owner, names ...string) *resource.Object[kind.MeshService] {
	port := kind.ServicePort{Port: 80}
	for _, name := range names {
		port.SNIs = append(port.SNIs, kind.SNI{Value: name})
	}
	return owned(kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{port}}), owner)
}

// snis are those of port 80 of the service.
func (w *world) snis() []string {
	var names []string
	spec, _ := w.service("web")
	for _, name := range spec.Ports[0].SNIs {
		names = append(names, name.Value)
	}
	return names
}

// TestServicesOfAnEarlierReleaseAreNamed: only what lacks a name is written, and only by its owner.
func TestServicesOfAnEarlierReleaseAreNamed(t *testing.T) {
	v1 := nameOf(sni.V1, "east")
	for name, test := range map[string]struct {
		service *resource.Object[kind.MeshService]
		asks    bool
		want    []string
	}{
		"of an earlier release":          {webOf(east), true, []string{v1}},
		"named":                          {webOf(east, v1), false, []string{v1}},
		"of a zone that was called west": {webOf(east, nameOf(sni.V1, "west")), true, []string{v1}},
		"of another zone":                {webOf(kind.Owner{Zone: "west"}), false, nil},
		"of another format":              {webOf(east, nameOf(sni.V2, "east")), true, []string{nameOf(sni.V2, "east"), v1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			rc := New(w.plan, nil, nil, w.commit, nil)
			w.put(test.service)
			rc.Observe([]resource.Any{test.service}, nil, nil, w.now)
			if _, asks := rc.due[Unit{SNIUnit, "default", ""}]; asks != test.asks {
				t.Errorf("asks %t, want %t", asks, test.asks)
			}
			w.reconcile(SNIUnit, "")
			if d := gocmp.Diff(test.want, w.snis()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestANameThatAnotherServiceHasIsLeft: it would be refused, and the others must go on.
func TestANameThatAnotherServiceHasIsLeft(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	other := owned(kind.MeshServices.Make("default", "other", kind.MeshService{
		Ports: []kind.ServicePort{{Port: 81, SNIs: []kind.SNI{{Value: nameOf(sni.V1, "east")}}}},
	}), kind.Owner{Zone: "west"})
	w.put(other, webOf(east))
	w.reconcile(SNIUnit, "")
	if got := w.snis(); len(got) > 0 {
		t.Errorf("the service is called %q", got)
	}
}

// viewer is a zone ingress or a client, which runs with names that it was told some time ago.
type viewer struct{ names []string }

// TestNamesMoveWithoutALostRequest walks between formats, back and forth at any moment: whatever clients and
// ingresses were told last, an ingress answers the name that a client states.
func TestNamesMoveWithoutALostRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, "241.0.0.0/8")
		w.put(webOf(east, nameOf(sni.V1, "east")))
		ingresses, clients := []*viewer{{w.snis()}, {w.snis()}}, []*viewer{{w.snis()}, {w.snis()}}
		all := slices.Concat(ingresses, clients)
		begun := map[string][]string{} // the names when a topic began to be waited for
		told := map[*viewer]int{}      // how often it was told
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, client := range clients {
					for _, ingress := range ingresses {
						if !slices.Contains(ingress.names, client.names[0]) {
							t.Fatalf("a client states %q, and an ingress answers %q", client.names[0], ingress.names)
						}
					}
				}
			},
			"choose a format": func(t *rapid.T) {
				format := rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "format")
				w.put(kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: format}))
			},
			"reconcile": func(*rapid.T) {
				before := len(w.waiting)
				waiting := w.waiting
				w.waiting = map[string]*Settle{}
				w.reconcile(SNIUnit, "")
				if before > 0 { // the same is waited for once
					w.waiting = waiting
				}
				for topic := range w.waiting {
					if begun[topic] == nil {
						begun[topic] = w.snis()
						clear(told)
					}
				}
			},
			"tell": func(t *rapid.T) {
				v := rapid.SampledFrom(all).Draw(t, "who")
				v.names = w.snis()
				told[v]++
			},
			"all were told": func(t *rapid.T) {
				for _, v := range all {
					if told[v] == 0 {
						t.Skip("somebody was not")
					}
				}
				clear(begun)
				w.settleUnchanged()
			},
			"restart": func(*rapid.T) { clear(begun); clear(w.waiting) },
		})
	})
}

// settleUnchanged says that every proxy runs with what the table had: what has changed since is left out.
func (w *world) settleUnchanged() {
	for topic, s := range w.waiting {
		delete(w.waiting, topic)
		for _, o := range s.Then {
			if now, ok := w.plan.State.Find(w.reader(), o.Key()); ok && now.Envelope().Version == o.Envelope().Version {
				w.put(o)
			}
		}
	}
}

// TestAMigrationIsWalkedToItsEnd: whoever wants another format gets there, through all steps.
func TestAMigrationIsWalkedToItsEnd(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
	w.put(webOf(east, v1), kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}))
	for _, want := range [][]string{{v1, v2}, {v2, v1}, {v2}} {
		w.reconcile(SNIUnit, "")
		w.settleUnchanged()
		if d := gocmp.Diff(want, w.snis()); d != "" {
			t.Fatal(d)
		}
	}
	if steps, _ := w.plan.For(w.reader(), Unit{SNIUnit, "default", ""}, w.now); len(steps) > 0 {
		t.Errorf("at its end the steps are %+v", steps)
	}
}

// TestAMigrationWaitsForIngressesThatAreAway: the last one is dialled though nobody knows what it answers, and
// one whose stream has just been lost too.
func TestAMigrationWaitsForIngressesThatAreAway(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
	w.put(webOf(east, v1, v2), kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}),
		w.door("door", "192.168.1.1"), w.passes("door", "192.168.1.1"))
	if again := w.reconcile(SNIUnit, ""); len(w.waiting) > 0 || !again.After(w.now) {
		t.Errorf("waits for %v, asks again at %v", w.waiting, again)
	}
	w.wantWait("the zone ingress door, which is away")
	w.put(w.stream("door", "a"))
	w.reconcile(SNIUnit, "")
	w.settleUnchanged()
	if got := w.snis(); got[0] != v2 {
		t.Errorf("once it is back, the names are %q", got)
	}
	w.wantWait()
}

// wantWait wants the zone to say that it waits for somebody.
func (w *world) wantWait(want ...string) {
	w.t.Helper()
	var got []string
	if row, ok := w.plan.State.SNIWaits.Find(w.reader(), "default", cmp.Or(w.plan.State.Zone, "global")); ok {
		got = row.Spec.For
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("it says that it waits for %q, want %q", got, want)
	}
}

// TestGlobalWaitsForTheIngressesOfAllZones: each of them passes on what is of many zones.
func TestGlobalWaitsForTheIngressesOfAllZones(t *testing.T) {
	state := graph.NewState("")
	w := &world{t: t, plan: NewPlan(state, Ranges{}), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), waiting: map[string]*Settle{}}
	door := func(healthy bool) resource.Any {
		return owned(kind.MeshZoneAddresses.Make("default", "west", kind.MeshZoneAddress{
			Ingresses: []kind.ZoneProxyAddress{{Name: "door", Address: "10.0.0.1", Port: 1, Healthy: healthy}},
		}), kind.Owner{Zone: "west"})
	}
	of := sni.Port{Kind: "MeshMultiZoneService", Mesh: "default", Name: "web", Number: 80}
	names := []kind.SNI{{Value: sni.V1.Name(of)}, {Value: sni.V2.Name(of)}}
	w.put(owned(kind.MeshMultiZoneServices.Make("default", "web", kind.MeshMultiZoneService{Ports: []kind.ServicePort{{Port: 80, SNIs: names}}}), kind.Owner{}),
		kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}), door(false))
	w.reconcile(SNIUnit, "")
	w.wantWait("the zone ingress door of zone west, which is away")
	w.put(door(true))
	w.reconcile(SNIUnit, "")
	w.wantWait()
	if len(w.waiting) != 1 {
		t.Errorf("once it is back, it waits for %v", w.waiting)
	}
}

// cutOff is a zone that confirms once it is connected.
type cutOff struct {
	connected chan struct{}
	confirms  time.Time // for the test alone: since when it does
}

func (c *cutOff) Confirmed(ctx context.Context, _ ...resource.Key) error {
	select {
	case <-c.connected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zone west, which is cut off: %w", ctx.Err())
	}
}

// at once, all of this zone's proxies run with everything.
type calm struct{}

func (calm) WaitAcked(context.Context, string, bool, []resource.Key, func([]graph.ProxyKey)) error {
	return nil
}

// sink takes the names that are written.
type sink struct{ written chan resource.Any }

func (s sink) Put(_ context.Context, o resource.Any) (string, error) { s.written <- o; return "", nil }
func (s sink) Create(context.Context, resource.Any) (string, error)  { return "", nil }
func (s sink) Version(context.Context, resource.Key) (string, error) { return "", nil }
func (s sink) Delete(context.Context, resource.Key, string) error    { return nil }

// TestOtherZonesAreWaitedFor: a name goes to the front once all zones confirm and the drain time has passed, and until
// then it is said who does not.
func TestOtherZonesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "241.0.0.0/8")
		w.plan.DrainTime = 5 * time.Second
		v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
		service := webOf(east, v1, v2)
		w.put(service, kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}))
		zones, written := &cutOff{connected: make(chan struct{})}, sink{make(chan resource.Any, 100)}
		rc := New(w.plan, written, calm{}, w.commit, slog.New(slog.NewTextHandler(io.Discard, nil)))
		rc.Zones = zones
		rc.Observe([]resource.Any{service}, nil, nil, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		go rc.Run(ctx)
		defer cancel()

		for o := range written.written {
			switch o := o.(type) {
			case *resource.Object[kind.SNIWait]:
				if want := []string{"zone west, which is cut off"}; !slices.Equal(o.Spec.For, want) {
					t.Errorf("it waits for %q, want %q", o.Spec.For, want)
				}
				close(zones.connected)
				zones.confirms = time.Now()
			case *resource.Object[kind.MeshService]:
				if o.Spec.Ports[0].SNI() != v2 {
					continue // its state is written too
				}
				if waited := time.Since(zones.confirms); zones.confirms.IsZero() || waited < w.plan.DrainTime {
					t.Errorf("the next name is written %s after the other zone has confirmed", waited)
				}
				return
			}
		}
	})
}
