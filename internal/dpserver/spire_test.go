package dpserver_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// withSPIREIdentity gives every Dataplane of the mesh default an identity that SPIRE signs.
func withSPIREIdentity() resource.Any {
	return kind.MeshIdentities.Make("default", "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
		SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "weft.test"},
		Provider: kind.IdentityProvider{Type: kind.Spire,
			Spire: &kind.SpireProvider{Agent: &kind.SpireAgent{SocketPath: "/run/agent.sock"}}},
	})
}

const webID = "spiffe://weft.test/workload/web"

func TestACertificateOfSPIREIsSeenAndNeverSigned(t *testing.T) {
	p := newPlane(t, withSPIREIdentity())
	p.register()
	stream, settings := p.session("run-1")
	if id := settings.Identity; id.GetSpiffeId() != webID || id.SpireSocket != "/run/agent.sock" {
		t.Fatalf("the agent hears of the identity %v", id)
	}
	_, err := p.agent.Sign(p.dataplaneToken("web-1"),
		&wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
	wantStatus(t, err, codes.FailedPrecondition, "certificates come from the SPIRE agent at /run/agent.sock")

	p.send(stream,
		&wire.Report{Run: "run-1", Certificate: &wire.Certificate{SpiffeId: webID, Problem: "it has no entry"}})
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return i.Certificate == nil && i.CertificateProblem == "it has no entry"
	})
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p.send(stream,
		&wire.Report{Run: "run-1", Certificate: &wire.Certificate{SpiffeId: "spiffe://weft.test/another",
			Serial: "66"}})
	p.send(stream,
		&wire.Report{Run: "run-1", Certificate: &wire.Certificate{SpiffeId: webID, Serial: "5e",
			NotAfterUnix: end.Unix()}})
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		if i.Certificate != nil && i.Certificate.Serial == "66" {
			t.Error("a certificate of another SPIFFE ID is stored as the proxy's")
		}
		return i.CertificateProblem == "" && i.Certificate != nil && i.Certificate.Serial == "5e" &&
			i.Certificate.SpiffeID == webID && i.Certificate.Issuer == "identity" && i.Certificate.Expiration.Equal(end)
	})
}

func TestAReportOfACertificateIsBounded(t *testing.T) {
	p := newPlane(t, withSPIREIdentity())
	p.register()
	stream, _ := p.session("run-1")
	p.send(stream,
		&wire.Report{Run: "run-1", Certificate: &wire.Certificate{SpiffeId: webID, Problem: strings.Repeat("x", 2000)}})
	for {
		if _, err := stream.Recv(); err != nil {
			wantStatus(t, err, codes.InvalidArgument, "certificate.problem has 2000 bytes")
			return
		}
	}
}
