package dpserver_test

import (
	"testing"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/wire"
	"weft/kind"
)

// TestADataplaneWithoutAMeshJoinsTheDefaultOne: it joins the mesh of the setting, by default `default`. (Zone Egress
// Identity.)
func TestADataplaneWithoutAMeshJoinsTheDefaultOne(t *testing.T) {
	const document = `{type: Dataplane, name: web-1, networking: {address: 10.0.0.1}}`
	for setting, mesh := range map[string]string{"": "default", "other": "other"} {
		t.Run("the setting is "+setting, func(t *testing.T) {
			p := newPlane(t, kind.Secrets.Make("other", pki.DataplaneRealm("other").SigningKey("1").Name,
				kind.Secret{Data: signingKey()}))
			if setting != "" {
				p.server.DefaultMesh = setting
			}
			token := p.tokenWithClaims(pki.DataplaneClaims{Mesh: mesh, Name: "web-1"})
			if _, err := p.agent.Register(token, &wire.RegisterRequest{Dataplane: []byte(document)}); err != nil {
				t.Fatal(err)
			}
			row, err := p.rows.Get(t.Context(), kind.Dataplanes.Key(mesh, "web-1"))
			if err != nil {
				t.Fatal(err)
			}
			if o, err := admission.Decode(row); err != nil || o.Key().Mesh != mesh {
				t.Errorf("it is %v (%v)", o, err)
			}
		})
	}
}
