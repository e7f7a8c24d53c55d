package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// meshWith returns a mesh of the zone east with mtls backends. The first word of a backend's name is its type.
func meshWith(enabled string, backends ...string) *resource.Object[kind.Mesh] {
	mtls := &kind.MeshMTLS{EnabledBackend: enabled}
	for _, backend := range backends {
		b := kind.MTLSBackend{Name: backend, Type: kind.BuiltinBackend,
			DPCert: &kind.DPCert{Rotation: &kind.DPCertRotation{Expiration: "1h"}}}
		if strings.HasPrefix(backend, "provided") {
			b.Type = kind.ProvidedBackend
			b.Conf = &kind.MTLSConf{Cert: &kind.LegacyDataSource{Secret: backend},
				Key: &kind.LegacyDataSource{Secret: backend}}
		}
		mtls.Backends = append(mtls.Backends, b)
	}
	mesh := kind.Meshes.Make("", "default", kind.Mesh{MTLS: mtls})
	mesh.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: "east"}
	return mesh
}

// reconcileMTLS reconciles the mtls of the mesh until no step is left, and returns the requeue time.
func (w *world) reconcileMTLS() (requeue time.Time) {
	for range 6 {
		requeue = w.reconcile("MeshIdentity", kind.MTLSIdentity)
	}
	return requeue
}

func (w *world) signingOfMTLS() *kind.SigningCA {
	row, ok := w.plan.State.Tables.SigningCAs.Find(w.reader(), "default", kind.MTLSIdentity)
	if !ok {
		return &kind.SigningCA{}
	}
	return &row.Spec
}

// trustedRootsOfMTLS returns the number of trusted roots of the mesh's trust domain.
func (w *world) trustedRootsOfMTLS() int {
	for _, domain := range w.plan.State.Identity.Trust.Get(w.reader(), "default").Domains {
		if domain.Name == "default" {
			return len(domain.Roots)
		}
	}
	return 0
}

// meshConditions returns the stored conditions of the mesh, as "TYPE=STATUS REASON".
func (w *world) meshConditions() string {
	status, ok := w.plan.State.Tables.MeshStatuses.Find(w.reader(), "", "default")
	if !ok {
		return "none"
	}
	var all []string
	for _, c := range status.Spec.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(all, ", ")
}

func (w *world) wantMTLS(what, signs string, roots int, conditions string) {
	w.t.Helper()
	if backend, trusted := w.signingOfMTLS().Backend, w.trustedRootsOfMTLS(); backend != signs || trusted != roots ||
		w.meshConditions() != conditions {
		w.t.Errorf("%s: %q signs, %d roots are trusted, the mesh says %q; want %q, %d, %q", what, backend, trusted,
			w.meshConditions(), signs, roots, conditions)
	}
}

func TestABuiltinBackendIsMadeOnceAndSigns(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(meshWith("ca-1", "ca-1"))
	w.reconcileMTLS()
	w.wantMTLS("before any ack", "", 1,
		"Ready=False RootPropagating, RotationConverged=False RootPropagating")
	w.ackAll()
	w.reconcileMTLS()
	w.wantMTLS("once all have", "ca-1", 1, "Ready=True Ready")
	first := w.signingOfMTLS().Fingerprint
	certificate, key := pki.BuiltinSecrets("default", "ca-1")
	if certificate != "default.ca-builtin-cert-ca-1" || key != "default.ca-builtin-key-ca-1" {
		t.Errorf("the Secrets are %s and %s, want Kuma's names", certificate, key)
	}
	w.remove(kind.Secrets.Key("default", key))
	w.reconcileMTLS()
	w.wantMTLS("without the key", "ca-1", 1, "Ready=False CAMissing")
	if w.signingOfMTLS().Fingerprint != first {
		t.Error("another authority signs than the last good one")
	}
}

// The zones of a mesh sign with one CA, which the owner of the mesh generates.
func TestOnlyTheOwnerOfAMeshMakesItsAuthority(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	mesh := meshWith("ca-1", "ca-1")
	mesh.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	w.put(mesh)
	w.reconcileMTLS()
	w.wantMTLS("a zone", "", 0, "Ready=False CAMissing")

	global := newWorldIn(t, "", "241.0.0.0/8")
	global.put(mesh)
	global.reconcileMTLS()
	global.wantMTLS("global", "", 1, "Ready=True Ready")
	for _, name := range []string{"default.ca-builtin-cert-ca-1", "default.ca-builtin-key-ca-1"} {
		secret, ok := global.plan.State.Tables.Secrets.Find(global.reader(), "default", name)
		if !ok {
			t.Fatalf("global has not made %s", name)
		}
		w.put(secret)
	}
	w.reconcileMTLS()
	w.ackAll()
	w.reconcileMTLS()
	w.wantMTLS("the zone with what came from global", "ca-1", 1, "Ready=True Ready")
}

// A backend is added and enabled, and the former one removed: at each step every proxy trusts every CA that may have
// signed.
func TestTheEnabledBackendChanges(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.put(meshWith("provided-1", "provided-1"), w.secret("provided-1", freshCA(w, "default")),
		w.secret("provided-2", freshCA(w, "default")))
	w.reconcileMTLS()
	w.ackAll()
	w.reconcileMTLS()
	w.wantMTLS("one backend", "provided-1", 1, "Ready=True Ready")
	until := w.now.Add(time.Hour)
	ca, err := pki.ParseCA(w.signingOfMTLS().Authority)
	if err != nil {
		t.Fatal(err)
	}
	w.put(kind.DataplaneCertificatesList.Make("default", "web-1",
		kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
			SpiffeIDs: kind.SpiffeIDsOf("spiffe://default/web"), MeshIdentity: kind.MTLSIdentity,
			Root: pki.Fingerprints(ca.Root())[0], Until: kind.Time{Time: until},
		}}}))
	w.put(meshWith("provided-1", "provided-1", "provided-2"))
	w.reconcileMTLS()
	w.wantMTLS("another beside it", "provided-1", 2, "Ready=True Ready")
	w.put(meshWith("provided-2", "provided-1", "provided-2"))
	w.reconcileMTLS()
	w.wantMTLS("enabled, and not acked", "provided-1", 2, "Ready=True Ready, RotationConverged=False RootPropagating")
	w.ackAll()
	w.reconcileMTLS()
	w.wantMTLS("acked", "provided-2", 2, "Ready=True Ready")
	w.put(meshWith("provided-2", "provided-2"))
	w.reconcileMTLS()
	w.wantMTLS("the former one removed, with a certificate in use", "provided-2", 2,
		"Ready=True Ready, RotationConverged=False FormerCertificatesRetained")
	w.now = until.Add(kind.ConnectionLife)
	w.reconcileMTLS()
	w.wantMTLS("and none any more", "provided-2", 1, "Ready=True Ready")
}

// A CA that can't be read changes nothing that is in use.
func TestAnUnreadableBackendIsAConditionAndTheLastValidCAStays(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	good := w.secret("provided-1", freshCA(w, "default"))
	w.put(meshWith("provided-1", "provided-1", "provided-2"), good, w.secret("provided-2", freshCA(w, "default")))
	w.reconcileMTLS()
	w.ackAll()
	w.reconcileMTLS()
	for _, c := range []struct{ what, secret, data, conditions string }{
		{"the enabled one is broken", "provided-1", "broken", "Ready=False CAInvalid"},
		{"it is another mesh's", "provided-1", freshCA(w, "other"), "Ready=False CAInvalid"},
		{"the other one is broken", "provided-2", "broken", "Ready=True Ready, BackendsRead=False CAMissing"},
	} {
		stored, _ := w.plan.State.Tables.Secrets.Find(w.reader(), "default", c.secret)
		w.put(w.secret(c.secret, c.data))
		w.now = w.now.Add(2 * lateSignings)
		w.reconcileMTLS()
		w.wantMTLS(c.what, "provided-1", 2, c.conditions)
		w.put(stored)
		w.reconcileMTLS()
		w.wantMTLS(c.what+", and mended", "provided-1", 2, "Ready=True Ready")
	}
	w.put(meshWith("", "provided-1"))
	w.reconcileMTLS()
	w.wantMTLS("disabled", "", 1, "")
	w.put(meshWith(""))
	w.reconcileMTLS()
	w.wantMTLS("without backends", "", 0, "")
	if _, ok := w.plan.State.Tables.SigningCAs.Find(w.reader(), "default", kind.MTLSIdentity); ok {
		t.Error("the row of who signs is still there")
	}
}
