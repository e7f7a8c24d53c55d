package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weft/kind"
	"weft/resource"
)

// TestWhatTheControlPlaneMakesComesBack: whatever the control plane has written and somebody deletes, while what it
// was made of stands, is written again at once and not at the next start.
func TestWhatTheControlPlaneMakesComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := follow(newWorld(t, "241.0.0.0/8"), true, calm{}, slog.New(slog.DiscardHandler))
		s.now = time.Now()
		s.plan.Lives = func(instance string) bool { return instance == "here" }
		ctx, cancel := context.WithCancel(t.Context())
		go s.rc.Run(ctx)
		go s.keepTime(ctx)
		defer cancel()
		s.user(meshWith("builtin-1", "builtin-1"), identityFor("default", "identity", nil), generator("all", "{{ .DisplayName }}.mesh", nil),
			kind.MeshServices.Make("default", "written", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
			s.dataplane("web-1", "10.0.0.1", "web"), s.serves("web-1", "10.0.0.1"),
			multiZoneService("many"), externalService("outside", kind.OriginZone),
			s.egress("out", 10001), s.stream("out", "here"), s.leadsOut("out", false, 10001),
			s.door("in", "10.0.0.9"), s.stream("in", "here"), s.passes("in", "10.0.0.9"),
			ownEgress("legacy"))
		quiet := func() {
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		quiet()

		// A key that is lost can't be made again for its certificate; the last good CA signs on, and a condition says so.
		delete(s.made, kind.Secrets.Key("default", "default.ca-builtin-key-builtin-1"))
		delete(s.made, kind.MeshServices.Key("default", "written")) // by a user; its state alone is written here
		expected := []string{
			"MeshService", "MeshServiceStatus", "MeshMultiZoneServiceStatus", "MeshExternalServiceStatus", "MeshIdentityStatus",
			"MeshTrust", "MeshTrustStatus", "MeshStatus", "SigningCA", "Secret", "ZoneEgressStatus", "MeshZoneAddress", "MeshEgressAddress",
		}
		kinds := map[string]bool{}
		for key := range s.made {
			kinds[key.Kind] = true
		}
		for _, want := range expected {
			if !kinds[want] {
				t.Errorf("no %s was made, so that its deletion is not tried", want)
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(s.made), func(a, b resource.Key) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) }) {
			before, ok := s.rows[key]
			if !ok {
				continue
			}
			s.removes(key)
			quiet()
			after, ok := s.rows[key]
			switch {
			case !ok:
				t.Errorf("%s was deleted, and is not there again", key)
			case key.Kind == "MeshServiceStatus" && !same(before.(*resource.Object[kind.MeshServiceStatus]).Spec, after.(*resource.Object[kind.MeshServiceStatus]).Spec):
				t.Errorf("%s was deleted, and came back as another", key)
			}
		}
	})
}
