package dpserver

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// noDataplanes has no Dataplane.
type noDataplanes struct{ Rows }

func (noDataplanes) Dataplane(state.ProxyKey) (*resource.Object[kind.Dataplane], bool) {
	return nil, false
}

// TestNoCertificateForADataplaneThatIsNotThere: a deleted Dataplane gets no certificate. A ZoneEgress does not need a
// Dataplane.
func TestNoCertificateForADataplaneThatIsNotThere(t *testing.T) {
	s := &Server{Config: Config{Rows: noDataplanes{}}}
	for proxy, want := range map[kind.ProxyType]codes.Code{kind.DataplaneProxy: codes.NotFound,
		kind.EgressProxy: codes.OK} {
		key := state.ProxyKey{Mesh: "default", Name: "web-1", Type: proxy}
		c := &caller{dataplane: &pki.DataplaneClaims{Mesh: "default", Name: "web-1"}}
		if err := s.checkEntitled(c, key, &identity.NextCertificate{}); status.Code(err) != want {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
}
