package admission_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/resource"
)

// TestMeshBackendIsChecked: a Mesh is rejected if the Secrets of a backend have no CA that can sign for it. A missing
// CA, a skipped validation and an unchanged backend are accepted.
func TestMeshBackendIsChecked(t *testing.T) {
	w, _ := newEastWriter(t)
	secret := func(name string, data []byte) {
		put(t, w, fmt.Sprintf("{type: Secret, mesh: m, name: %s, data: %s}", name,
			base64.StdEncoding.EncodeToString(data)))
	}
	for name, domain := range map[string]string{"good": "m", "strange": "other"} {
		certificate, key, err := pki.NewCA(time.Now(), domain)
		if err != nil {
			t.Fatal(err)
		}
		secret(name, append(certificate, key...))
	}
	secret("broken", []byte("broken"))
	mesh := func(secret, further string) string {
		return fmt.Sprintf("{type: Mesh, name: m, mtls: {enabledBackend: ca-1, %s backends: [{name: ca-1, type: "+
			"provided, conf: {cert: {secret: %s}, key: {secret: %[2]s}}}]}}", further, secret)
	}
	for _, c := range []struct{ secret, further, want string }{
		{"good", "", ""},
		{"missing", "", ""},
		{"broken", "", "mtls.backends[0].conf: the CA has no certificate"},
		{"strange", "", `can't sign for "m"`},
		{"broken", "skipValidation: true,", ""},
		{"broken", "", ""}, // unchanged
		{"good", "", ""},
	} {
		_, err := w.Put(t.Context(), parse(t, mesh(c.secret, c.further)), admission.Change{})
		if c.want != "" {
			wantError(t, err, resource.Invalid, c.want)
		} else if err != nil {
			t.Errorf("%s %s: %v", c.secret, c.further, err)
		}
	}
}
