package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/kind"
	"weft/resource"
)

func identityFor(mesh, name string, matchLabels map[string]string) resource.Any {
	return kind.MeshIdentities.Make(mesh, name, kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: matchLabels}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	})
}

func ownEgress(name string) resource.Any {
	o := kind.ZoneEgresses.Make("", name, kind.ZoneEgress{Zone: "east"})
	o.Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	return o
}

// TestAZoneEgressHasAConditionForItsIdentity: the status of a ZoneEgress follows the rules. Each change that needs an
// operator is one log line with the message of the condition: an error for a missing identity, and a warning that names
// the setting for a missing default mesh. (Zone Egress Identity.)
func TestAZoneEgressHasAConditionForItsIdentity(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	var log bytes.Buffer
	m := follow(w, false, slog.New(slog.NewTextHandler(&log, nil)))
	look := func() kind.Condition {
		t.Helper()
		m.drain()
		status, ok := w.plan.State.Tables.ZoneEgressStatuses.Find(w.reader(), "", "ze")
		if !ok {
			t.Fatal("it has no status")
		}
		return status.Spec.Conditions[0]
	}
	for _, step := range []struct {
		what         string
		put          resource.Any
		status, says string
		logged       string
	}{
		{"without a mesh", ownEgress("ze"), "False", "no mesh has an identity",
			`level=ERROR msg="a zone egress has no identity`},
		{"one mesh without identities", kind.Meshes.Make("", "shop", kind.Mesh{}), "False", "no mesh has an identity",
			""},
		{"one for a part of the mesh", identityFor("shop", "part", map[string]string{"app": "web"}), "False",
			"no mesh has an identity", ""},
		{"one for all", identityFor("shop", "all", nil), "True", "MeshIdentity shop/all", ""},
		{"a second mesh", kind.Meshes.Make("", "apple", kind.Mesh{}), "True", "set KUMA_DEFAULTS_MESH", "level=WARN"},
		{"another of the first mesh", identityFor("shop", "other", nil), "True", "set KUMA_DEFAULTS_MESH", ""},
		{"the usual mesh", kind.Meshes.Make("", "default", kind.Mesh{}), "True", "set KUMA_DEFAULTS_MESH", ""},
		{"its identity", identityFor("default", "identity", nil), "True", "MeshIdentity default/identity", ""},
	} {
		log.Reset()
		m.user(step.put)
		said := look()
		if said.Type != "Identity" || said.Status != step.status || !strings.Contains(said.Message, step.says) {
			t.Errorf("%s: it says %+v, want %s that says %q", step.what, said, step.status, step.says)
		}
		look() // logs nothing once more
		lines := 0
		if step.logged != "" {
			lines = 1
		}
		if got := log.String(); strings.Count(got, "\n") != lines || lines > 0 &&
			!(strings.Contains(got, step.logged) && strings.Contains(got, step.says)) {
			t.Errorf("%s: the log has %q, want %d line with %q and %q", step.what, got, lines, step.logged, step.says)
		}
	}
}

// TestTheMissingDefaultMeshIsLoggedOnceForEachLeadership: a new leader logs it although an earlier one has stored the
// condition, and once for all ZoneEgresses of the zone. (Zone Egress Identity.)
func TestTheMissingDefaultMeshIsLoggedOnceForEachLeadership(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, "241.0.0.0/8")
		var log bytes.Buffer
		m := follow(w, true, slog.New(slog.NewTextHandler(&log, nil)))
		m.user(ownEgress("ze-1"), ownEgress("ze-2"), kind.Meshes.Make("", "shop", kind.Mesh{}),
			kind.Meshes.Make("", "apple", kind.Mesh{}),
			identityFor("shop", "all", nil))
		for _, term := range []string{"the first", "the same instance, once more"} {
			log.Reset()
			ctx, cancel := context.WithCancel(t.Context())
			go m.rc.Run(ctx)
			for _, when := range []string{"at its beginning", "when the ZoneEgresses are reconciled again"} {
				time.Sleep(time.Minute)
				synctest.Wait()
				const sentence = "set KUMA_DEFAULTS_MESH"
				if got := log.String(); strings.Count(got, sentence) != 1 ||
					!strings.Contains(got, `zoneEgress="ze-1, ze-2"`) {
					t.Errorf("%s leadership, %s: the log has %q, want %q once", term, when, got, sentence)
				}
				m.rn.setWrites(Request{Kind: kind.ZoneEgresses.Name},
					m.rn.jobs[Request{Kind: kind.ZoneEgresses.Name}].writes,
					time.Now())
			}
			cancel()
			synctest.Wait()
		}
	})
}

// SPIRE's roots can't be joined with others: the condition names the meshes that a ZoneEgress can't serve, and they get
// no plaintext. (Zone Egress Identity.)
func TestAZoneEgressNamesTheMeshesThatItCanNotServe(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	spire := func(mesh, domain string) resource.Any {
		return kind.MeshIdentities.Make(mesh, "spire", kind.MeshIdentity{
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: domain}, Provider: kind.IdentityProvider{Type: "Spire"},
		})
	}
	for _, mesh := range []string{"default", "plain", "shop", "spired", "spired-2"} {
		w.put(kind.Meshes.Make("", mesh, kind.Mesh{}))
	}
	w.put(spire("default", "corp.example"), spire("spired", "corp.example"), spire("spired-2", "other.example"),
		identityFor("shop", "all", nil), ownEgress("ze"))
	for _, write := range w.plan.egressIdentities(w.reader(), Request{}).Do {
		w.put(write.Create)
	}
	status, _ := w.plan.State.Tables.ZoneEgressStatuses.Find(w.reader(), "", "ze")
	said, ok := conditionOf(status.Spec.Conditions, "Compatible")
	if !ok || said.Status != "False" ||
		!strings.Contains(said.Message, "proxies of the meshes shop, spired-2 and it can't connect to each other") {
		t.Errorf("its conditions are %+v", status.Spec.Conditions)
	}
}

// The root of a ZoneEgress's certificates stays trusted until the last certificate and its connections have ended. The
// certificates are removed with it.
func TestTheCertificatesOfAZoneEgressKeepTheirRoot(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row := kind.ZoneEgressCertificatesList.Make("default", "ze",
		kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{
			{SpiffeIDs: kind.SpiffeIDsOf("spiffe://default/zone-egress"), MeshIdentity: kind.MTLSIdentity, Root: "old",
				Until: kind.Time{Time: w.now.Add(time.Minute)}},
			{SpiffeIDs: kind.SpiffeIDsOf("spiffe://default/zone-egress"), MeshIdentity: kind.MTLSIdentity, Root: "new",
				Until: kind.Time{Time: w.now.Add(time.Hour)}},
		}})
	w.put(ownEgress("ze"), row)
	holders := func(root string) int { return len(w.plan.State.Identity.Holders(w.reader(), "default", root)) }
	for _, at := range []struct {
		after    time.Duration
		old, new int
	}{{0, 1, 1}, {time.Minute, 1, 1}, {11 * time.Minute, 0, 1}, {70 * time.Minute, 0, 0}} {
		w.now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(at.after)
		w.reconcile(kind.ZoneEgressCertificatesList.Name, "ze")
		if holders("old") != at.old || holders("new") != at.new {
			t.Errorf("after %s the former root has %d holders and the new one %d, want %d and %d", at.after,
				holders("old"), holders("new"), at.old, at.new)
		}
	}
	w.put(row)
	w.remove(kind.ZoneEgresses.Key("", "ze"))
	w.reconcile(kind.ZoneEgressCertificatesList.Name, "ze")
	if holders("new") != 0 {
		t.Error("what a ZoneEgress held stays though it is gone")
	}
}
