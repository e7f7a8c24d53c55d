package dpserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/envoy"
	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// egressRows are the certificates that a ZoneEgress may present.
type egressRows struct {
	Rows
	rows []*resource.Object[kind.DataplaneCertificates]
}

func (r egressRows) EgressCertificates(string) []*resource.Object[kind.DataplaneCertificates] {
	return r.rows
}

// HoldsValid implements [Rows]. The store has taken all writes.
func (r egressRows) HoldsValid(certificates *kind.DataplaneCertificates, at time.Time) bool {
	return certificates.InUse().Until.After(at)
}

// egressAcks says whether every client has acked.
type egressAcks struct {
	Acks
	heard bool
}

func (a egressAcks) ClientsAccept(context.Context, ...resource.Key) error {
	if a.heard {
		return nil
	}
	return errors.New("some have not")
}

// TestTheNextCertificateOfAZoneEgressWaitsForItsClients: a ZoneEgress gets a certificate with other SPIFFE IDs, or of
// another root, once every client accepts it. A client that never acks can't keep it without a certificate.
func TestTheNextCertificateOfAZoneEgressWaitsForItsClients(t *testing.T) {
	presented := func(mesh, id, root string, life time.Duration) *resource.Object[kind.DataplaneCertificates] {
		return kind.ZoneEgressCertificatesList.Make(mesh, "ze",
			kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{
				{SpiffeIDs: kind.SpiffeIDsOf(id), Root: root, Until: kind.Time{Time: time.Now().Add(life)}},
			}})
	}
	const id = "spiffe://shop/zone-egress"
	for name, c := range map[string]struct {
		rows  []*resource.Object[kind.DataplaneCertificates]
		heard bool
		given bool
	}{
		"its first one": {nil, false, true},
		"the same again": {[]*resource.Object[kind.DataplaneCertificates]{presented("shop", id,
			"root", time.Hour)}, false, true},
		"another root": {[]*resource.Object[kind.DataplaneCertificates]{presented("shop", id,
			"former", time.Hour)}, false, false},
		"another root that all trust": {[]*resource.Object[kind.DataplaneCertificates]{presented("shop", id,
			"former", time.Hour)}, true, true},
		"another name": {[]*resource.Object[kind.DataplaneCertificates]{presented("shop",
			"spiffe://shop/former", "root", time.Hour)}, false, false},
		"another mesh's": {[]*resource.Object[kind.DataplaneCertificates]{presented("apple", id,
			"root", time.Hour)}, false, false},
		"another, and its own ends meanwhile": {[]*resource.Object[kind.DataplaneCertificates]{presented("apple", id,
			"root", time.Second)}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			rows := memory.New(memory.Options{})
			defer rows.Close()
			writer := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
			for _, o := range []resource.Any{kind.Meshes.Make("", "shop", kind.Mesh{})} {
				if _, err := writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
					t.Fatal(err)
				}
			}
			s := &Server{Config: Config{Rows: egressRows{rows: c.rows}, Acks: egressAcks{heard: c.heard},
				Writer: writer}}
			next := &identity.NextCertificate{Mesh: "shop", MeshIdentity: kind.MTLSIdentity,
				SpiffeIDs: kind.SpiffeIDsOf(id)}
			certificate := presented("shop", id, "root", time.Hour).Spec.Certificates[0]
			err := s.storeEgressCertificate(t.Context(), state.ZoneEgressProxy("ze"), next, certificate)
			_, stored := rows.Get(t.Context(), kind.ZoneEgressCertificatesList.Key("shop", "ze"))
			switch {
			case c.given && (err != nil || stored != nil):
				t.Errorf("it is not given: %v, %v", err, stored)
			case !c.given && (resource.CodeOf(err) != resource.Unavailable || stored == nil):
				t.Errorf("it is signed, or rejected with %v", err)
			}
		})
	}
}
