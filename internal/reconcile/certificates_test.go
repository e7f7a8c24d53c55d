package reconcile

import (
	"log/slog"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// Certificates may be renewed more often than all proxies need to ack a next SPIFFE ID.
func TestARenewedCertificateDoesNotEndTheWaitForANextIdentity(t *testing.T) {
	for what, c := range map[string]struct {
		until    time.Duration
		next     string
		accepted bool
	}{
		"its certificate is renewed":        {2 * time.Hour, "/second/{{ .Workload }}", true},
		"another SPIFFE ID is to come next": {time.Hour, "/third/{{ .Workload }}", false},
	} {
		t.Run(what, func(t *testing.T) {
			m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.DiscardHandler))
			identity := func(path string) resource.Any {
				o := provided().(*resource.Object[kind.MeshIdentity])
				o.Spec.SpiffeID = &kind.SpiffeIDTemplate{TrustDomain: domain, Path: path}
				return o
			}
			workload := m.dataplane("web-1", "10.0.0.1", "web")
			workload.Envelope().Labels = map[string]string{kind.WorkloadLabel: "web"}
			m.user(kind.Meshes.Make("", "default", kind.Mesh{}), m.secret("ca", freshCA(m.world, domain)),
				identity("/second/{{ .Workload }}"), workload)
			m.drain()
			row := func() *resource.Object[kind.DataplaneCertificates] {
				o, _ := m.plan.State.Certificates.Find(m.reader(), "default", "web-1")
				return o
			}
			m.user(kind.DataplaneCertificatesList.Make("default", "web-1", kind.DataplaneCertificates{
				Certificates: []kind.WorkloadCertificate{
					{SpiffeIDs: kind.SpiffeIDsOf("spiffe://" + domain + "/first/web"),
						MeshIdentity: "id", Root: "root", Until: kind.Time{Time: m.now.Add(time.Hour)}},
				}}))
			for range 5 {
				m.now = m.now.Add(servingDelay)
				m.step()
			}
			waiting := m.waits[identityWaitName("default")]
			if row().Spec.Next == nil || row().Spec.Next.Accepted || waiting == nil {
				t.Fatalf("%+v, and the waits are %v", row().Spec, m.waits)
			}
			m.user(identity(c.next))
			renewed := *row()
			renewed.Spec.Certificates[0].Until = kind.Time{Time: m.now.Add(c.until)}
			m.user(&renewed)
			for range 5 {
				m.now = m.now.Add(servingDelay)
				m.step()
			}
			m.barrier.Finish(waiting)
			for range 5 {
				m.now = m.now.Add(servingDelay)
				m.step()
			}
			if row().Spec.Next.Accepted != c.accepted {
				t.Errorf("after the acks of %v the next identity is %+v", waiting.States, row().Spec.Next)
			}
		})
	}
}
