package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft/internal/bubble"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// owned returns a service in the form that admit stores.
func owned[S any](o *resource.Object[S], owner kind.Owner) *resource.Object[S] {
	o.Labels = map[string]string{kind.DisplayName: o.Name, kind.OriginLabel: kind.OriginGlobal}
	if !owner.Global() {
		o.Labels[kind.OriginLabel], o.Labels[kind.ZoneLabel] = kind.OriginZone, owner.Zone
	}
	return o
}

var east = kind.Owner{Zone: "east"}

// nameOf returns the SNI of port 80 of the MeshService web.
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

// snis returns the SNIs of port 80 of the service.
func (w *world) snis() []string {
	var names []string
	spec, _ := w.service("web")
	for _, name := range spec.Ports[0].SNIs {
		names = append(names, name.Value)
	}
	return names
}

// reconcileSNIs executes the writes of the service and the SNIs of the mesh.
func (w *world) reconcileSNIs() (next time.Time) {
	w.reconcile("MeshService", "web")
	return w.reconcile(SNIKind, "")
}

// TestServicesOfAnEarlierReleaseAreNamed: only ports without an SNI are written, and only by the owner of the service.
func TestServicesOfAnEarlierReleaseAreNamed(t *testing.T) {
	v1 := nameOf(sni.V1, "east")
	for name, test := range map[string]struct {
		service *resource.Object[kind.MeshService]
		want    []string
	}{
		"of an earlier release":          {webOf(east), []string{v1}},
		"named":                          {webOf(east, v1), []string{v1}},
		"of a zone that was called west": {webOf(east, nameOf(sni.V1, "west")), []string{v1}},
		"of another zone":                {webOf(kind.Owner{Zone: "west"}), nil},
		"of another format": {webOf(east, nameOf(sni.V2, "east")),
			[]string{nameOf(sni.V2, "east"), v1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			w.put(test.service)
			w.reconcileSNIs()
			if d := gocmp.Diff(test.want, w.snis()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestANameThatAnotherServiceHasIsLeft: its write would be rejected, so the service gets one of another format.
func TestANameThatAnotherServiceHasIsLeft(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	other := owned(kind.MeshServices.Make("default", "other", kind.MeshService{
		Ports: []kind.ServicePort{{Port: 81, SNIs: []kind.SNI{{Value: nameOf(sni.V1, "east")}}}},
	}), kind.Owner{Zone: "west"})
	w.put(other, webOf(east))
	w.reconcileSNIs()
	if got := w.snis(); !slices.Equal(got, []string{nameOf(sni.V2, "east")}) {
		t.Errorf("the SNIs are %q", got)
	}
}

// viewer is a zone ingress or a client, with the SNIs that it received last.
type viewer struct{ names []string }

// TestNamesMoveWithoutALostRequest migrates between formats, back and forth at any moment. Whatever configuration
// clients and ingresses have, an ingress matches the SNI that a client sends.
func TestNamesMoveWithoutALostRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, "241.0.0.0/8")
		w.put(webOf(east, nameOf(sni.V1, "east")))
		ingresses, clients := []*viewer{{w.snis()}, {w.snis()}}, []*viewer{{w.snis()}, {w.snis()}}
		all := slices.Concat(ingresses, clients)
		begun := map[string][]string{} // by wait, the SNIs when it began
		told := map[*viewer]int{}      // how often the viewer was updated
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
				w.reconcileSNIs()
				for name := range w.waits {
					if begun[name] == nil {
						begun[name] = w.snis()
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
				w.ackAll()
			},
			"restart": func(*rapid.T) { clear(begun); w.restart() },
		})
	})
}

// TestAMigrationIsWalkedToItsEnd: a migration to another format ends there, through all steps.
func TestAMigrationIsWalkedToItsEnd(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
	w.put(webOf(east, v1), kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}))
	for _, want := range [][]string{{v1, v2}, {v2, v1}, {v2}} {
		w.reconcileSNIs()
		for range 3 { // each step but the first waits for acks
			if d := gocmp.Diff(want, w.snis()); d != "" {
				t.Fatal(d)
			}
			w.reconcileSNIs()
		}
		w.ackAll()
	}
	if w.reconcileSNIs(); len(w.waits) > 0 || len(w.snis()) != 1 {
		t.Errorf("at its end the waits are %+v", w.waits)
	}
}

// The last ingress is dialed although its configuration is unknown, and so is an ingress that has just lost its stream.
func TestAMigrationWaitsForDisconnectedIngresses(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
	w.put(webOf(east, v1, v2), kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}),
		w.zoneIngress("in-1", "192.168.1.1"), w.passes("in-1", "192.168.1.1"))
	if w.reconcileSNIs(); len(w.waits) > 0 {
		t.Errorf("waits for %v", w.waits)
	}
	w.wantWait("the zone ingress in-1, which is disconnected")
	w.put(w.stream("in-1", "a"))
	w.reconcileSNIs()
	w.ackAll()
	w.reconcileSNIs()
	if got := w.snis(); got[0] != v2 {
		t.Errorf("once it is back, the names are %q", got)
	}
	w.wantWait()
}

// wantWait fails unless the zone reports that it waits for want.
func (w *world) wantWait(want ...string) {
	w.t.Helper()
	var got []string
	tables := w.plan.State.Tables
	if row, ok := tables.SNIWaits.Find(w.reader(), "default", cmp.Or(tables.Zone, "global")); ok {
		got = row.Spec.For
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("it says that it waits for %q, want %q", got, want)
	}
}

// TestGlobalWaitsForTheIngressesOfAllZones: each of them forwards the SNIs of global services.
func TestGlobalWaitsForTheIngressesOfAllZones(t *testing.T) {
	w := newWorldIn(t, "", "241.0.0.0/8")
	ingress := func(healthy bool) resource.Any {
		return owned(kind.MeshZoneAddresses.Make("default", "west", kind.MeshZoneAddress{
			Ingresses: []kind.ZoneProxyAddress{{Name: "in-1", Address: "10.0.0.1", Port: 1, Healthy: healthy}},
		}), kind.Owner{Zone: "west"})
	}
	of := sni.Port{Kind: "MeshMultiZoneService", Mesh: "default", Name: "web", Number: 80}
	names := []kind.SNI{{Value: sni.V1.Name(of)}, {Value: sni.V2.Name(of)}}
	w.put(owned(kind.MeshMultiZoneServices.Make("default", "web",
		kind.MeshMultiZoneService{Ports: []kind.ServicePort{{Port: 80, SNIs: names}}}), kind.Owner{}),
		kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}), ingress(false))
	w.reconcile(SNIKind, "")
	w.wantWait("the zone ingress in-1 of zone west, which is disconnected")
	w.put(ingress(true))
	w.reconcile(SNIKind, "")
	w.wantWait()
	if len(w.waits) != 1 {
		t.Errorf("once it is back, it waits for %v", w.waits)
	}
}

// cutOff is a zone that confirms once it is connected.
type cutOff struct{ connected chan struct{} }

func (c *cutOff) AwaitConfirmed(ctx context.Context, _ ...resource.Key) error {
	select {
	case <-c.connected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zone west, which is cut off: %w", ctx.Err())
	}
}

// TestOtherZonesAreWaitedFor: an SNI becomes the first once all zones have confirmed and the drain time has passed.
// Until then, the pending zones are reported.
func TestOtherZonesAreWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := follow(newWorld(t, "241.0.0.0/8"), true, slog.New(slog.DiscardHandler))
		m.now = time.Now()
		zones := &cutOff{connected: make(chan struct{})}
		m.barrier.Zones, m.barrier.DrainTime = zones, 5*time.Second
		v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
		m.user(kind.Meshes.Make("", "default", kind.Mesh{}),
			kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: "v2"}))
		m.user(webOf(east, v1, v2))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.rc.Run(ctx)
		go keepTime(ctx, m)

		time.Sleep(time.Minute)
		synctest.Wait()
		m.wantWait("zone west, which is cut off")
		if got := m.snis(); got[0] != v1 {
			t.Errorf("the first SNI is %s before the other zone has confirmed", got[0])
		}
		close(zones.connected)
		confirmed := time.Now()
		for m.snis()[0] != v2 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if waited := time.Since(confirmed); waited < m.barrier.DrainTime {
			t.Errorf("the next SNI is written %s after the other zone has confirmed", waited)
		}
	})
}

// TestTheSecondOwnerOfAnSNIGetsAnother: a MeshService whose SNI one of another zone had first gets an SNI that no other
// can have, at once, and keeps it while the other one has the first. Another zone's does not change.
func TestTheSecondOwnerOfAnSNIGetsAnother(t *testing.T) {
	v1, v2 := nameOf(sni.V1, "east"), nameOf(sni.V2, "east")
	w := newWorld(t, "241.0.0.0/8")
	w.put(webOf(east, v1))
	w.reconcileSNIs()
	if got := w.snis(); !slices.Equal(got, []string{v1}) {
		t.Fatalf("alone it has %q", got)
	}
	theirs := webOf(kind.Owner{Zone: "west"}, v1)
	theirs.Name = "theirs"
	w.put(theirs)
	for range 3 {
		w.reconcileSNIs()
		w.reconcile("MeshService", "theirs")
	}
	if got := w.snis(); !slices.Equal(got, []string{v2}) {
		t.Errorf("it has %q, want %q alone", got, v2)
	}
	if spec, _ := w.service("theirs"); len(spec.Ports[0].SNIs) != 1 || spec.Ports[0].SNIs[0].Value != v1 {
		t.Errorf("the first owner has %v", spec.Ports[0].SNIs)
	}
	w.remove(theirs.Key())
	w.reconcileSNIs()
	if got := w.snis(); !slices.Equal(got, []string{v2, v1}) {
		t.Errorf("once the SNI is free it has %q, want to move to it", got)
	}
}
