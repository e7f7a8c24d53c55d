package reconcile

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// fromSPIRE is a MeshIdentity whose certificates SPIRE gives.
func fromSPIRE(name, domain string) *resource.Object[kind.MeshIdentity] {
	return kind.MeshIdentities.Make("default", name, kind.MeshIdentity{
		SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: domain},
		Provider: kind.IdentityProvider{Type: kind.Spire},
	})
}

func TestWhatGoesTogetherWithSPIRE(t *testing.T) {
	bundled := kind.MeshIdentities.Make("default", "other",
		kind.MeshIdentity{Provider: kind.IdentityProvider{Type: kind.Bundled}})
	legacy := kind.Meshes.Make("", "default", kind.Mesh{MTLS: &kind.MeshMTLS{
		EnabledBackend: "ca-1", Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}},
	}})
	disabled := kind.Meshes.Make("", "default", kind.Mesh{MTLS: &kind.MeshMTLS{Backends: legacy.Spec.MTLS.Backends}})
	for _, test := range []struct {
		name  string
		with  resource.Any
		mixed string // part of what is said; empty: they go together
	}{
		{"SPIRE alone", disabled, ""},
		{"another MeshIdentity of the same trust domain", fromSPIRE("other", "weft.test"), ""},
		{"one of another trust domain", fromSPIRE("other", "else.test"),
			`SPIRE of the trust domain "else.test" and from SPIRE of the trust domain "weft.test"`},
		{"the control plane's own", bundled, `SPIRE of the trust domain "weft.test" and from the control plane`},
		{"mtls of the Mesh", legacy, `SPIRE of the trust domain "weft.test" and from the control plane`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "241.0.0.0/8")
			w.put(fromSPIRE("id", "weft.test"), test.with)
			got := w.conditions()
			if got["Ready"].Status != "True" {
				t.Errorf("Ready is %+v", got["Ready"])
			}
			mixed := got["Compatible"]
			if (mixed.Status == "False") != (test.mixed != "") || !strings.Contains(mixed.Message, test.mixed) {
				t.Errorf("Compatible is %+v, want one that says %q", mixed, test.mixed)
			}
		})
	}
}

func TestABundledIdentityThatIsMixedWithSPIRESaysSo(t *testing.T) {
	w, _ := begun(t)
	w.put(fromSPIRE("other", "weft.test"))
	if got := w.conditions(); got["Compatible"].Status != "False" || got["Ready"].Status != "True" {
		t.Errorf("conditions are %+v, want it ready and not compatible", got)
	}
}

func TestTheControlPlanesCAGoesAfterSPIREHasTakenOver(t *testing.T) {
	w, _ := begun(t)
	end := w.now.Add(time.Hour)
	w.holds("web", end)
	w.put(fromSPIRE("id", "weft.test"))
	w.reconcileIdentity()
	if w.roots() != 1 {
		t.Fatal("the root was removed while a certificate of it is valid")
	}
	w.remove(kind.DataplaneCertificatesList.Key("default", "web"))
	w.now = end.Add(time.Hour)
	w.reconcileIdentity()
	if _, ok := w.plan.State.Tables.SigningCAs.Find(w.reader(), "default", "id"); ok || w.roots() != 0 {
		t.Error("the former CA, or its root, stays")
	}
}

func TestMixedProvidersAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.NewTextHandler(&log, nil)))
	m.user(fromSPIRE("id", "weft.test"),
		kind.MeshIdentities.Make("default", "other",
			kind.MeshIdentity{Provider: kind.IdentityProvider{Type: kind.Bundled}}))
	m.drain()
	m.removes(kind.MeshIdentities.Key("default", "id"))
	m.user(fromSPIRE("another", "weft.test"))
	if n := strings.Count(log.String(), "MeshIdentities of a mesh have providers that don't go together"); n != 1 {
		t.Errorf("it is said %d times, want once:\n%s", n, log.String())
	}
}

func conditionOf(conditions []kind.Condition, of string) (kind.Condition, bool) {
	i := slices.IndexFunc(conditions, func(c kind.Condition) bool { return c.Type == of })
	if i < 0 {
		return kind.Condition{}, false
	}
	return conditions[i], true
}
