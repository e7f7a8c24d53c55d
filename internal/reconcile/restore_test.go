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

	"weft/internal/bubble"
	"weft/kind"
	"weft/resource"
)

// TestDeletedRowsOfTheControlPlaneAreWrittenAgain: a deleted row of the control plane is written again at once, and not
// at the next start, while its sources exist.
func TestDeletedRowsOfTheControlPlaneAreWrittenAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := follow(newWorld(t, "241.0.0.0/8"), true, slog.New(slog.DiscardHandler))
		s.now = time.Now()
		s.plan.Lives = func(instance string) bool { return instance == "here" }
		ctx, cancel := context.WithCancel(t.Context())
		go s.rc.Run(ctx)
		go keepTime(ctx, s)
		defer cancel()
		s.user(meshWith("builtin-1", "builtin-1"), identityFor("default", "identity", nil),
			generator("all", "{{ .DisplayName }}.mesh", nil),
			kind.MeshServices.Make("default", "written", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
			s.dataplane("web-1", "10.0.0.1", "web"), s.serves("web-1", "10.0.0.1"),
			multiZoneService("many"), externalService("outside", kind.OriginZone),
			s.egress("out", 10001), s.stream("out", "here"), s.servesEgress("out", false, 10001),
			s.zoneIngress("in", "10.0.0.9"), s.stream("in", "here"), s.passes("in", "10.0.0.9"),
			ownEgress("legacy"))
		quiet := func() {
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		quiet()

		// A lost key can't be generated again for its certificate. The last valid CA keeps signing, and a condition
		// reports it.
		delete(s.made, kind.Secrets.Key("default", "default.ca-builtin-key-builtin-1"))
		// written by a user; the control plane writes its state only
		delete(s.made, kind.MeshServices.Key("default", "written"))
		delete(s.made, kind.Meshes.Key("", "default")) // written by a user; the control plane completes it
		expected := []string{
			"MeshService", "MeshServiceStatus", "MeshMultiZoneServiceStatus", "MeshExternalServiceStatus",
			"MeshIdentityStatus",
			"MeshTrust", "MeshTrustStatus", "MeshStatus", "SigningCA", "Secret", "ZoneEgressStatus", "MeshZoneAddress",
			"MeshEgressAddress",
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
		for _, key := range slices.SortedFunc(maps.Keys(s.made), func(a, b resource.Key) int {
			return bytes.Compare([]byte(a.String()), []byte(b.String()))
		}) {
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
			case key.Kind == "MeshServiceStatus" && !sameSpec(before.(*resource.Object[kind.MeshServiceStatus]).Spec,
				after.(*resource.Object[kind.MeshServiceStatus]).Spec):
				t.Errorf("%s was deleted, and came back as another", key)
			}
		}
	})
}
