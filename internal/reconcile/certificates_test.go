package reconcile

import (
	"log/slog"
	"testing"
	"time"

	"weft/internal/barrier"
	"weft/internal/table"
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
				o, _ := m.plan.State.Tables.Certificates.Find(m.reader(), "default", "web-1")
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

// newChangingProxies returns a mesh with the proxy web-0, whose next SPIFFE ID awaits the acks of the mesh, and that
// wait.
func newChangingProxies(t *testing.T) (*mirrored, *barrier.Wait) {
	t.Helper()
	m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.DiscardHandler))
	identity := provided().(*resource.Object[kind.MeshIdentity])
	identity.Spec.SpiffeID = &kind.SpiffeIDTemplate{TrustDomain: domain, Path: "/second/{{ .Workload }}"}
	m.user(kind.Meshes.Make("", "default", kind.Mesh{}), m.secret("ca", freshCA(m.world, domain)), identity)
	m.addProxyWithFormerID("web-0", "10.0.0.1")
	m.pass(40 * time.Second)
	first := m.waits[identityWaitName("default")]
	if first == nil {
		t.Fatal("the mesh waits for no acks")
	}
	return m, first
}

// addProxyWithFormerID stores a proxy of the service web with a certificate of a former SPIFFE ID.
func (m *mirrored) addProxyWithFormerID(name, address string) {
	proxy := m.dataplane(name, address, "web")
	proxy.Envelope().Labels = map[string]string{kind.WorkloadLabel: name}
	m.user(proxy, kind.DataplaneCertificatesList.Make("default", name, kind.DataplaneCertificates{
		Certificates: []kind.WorkloadCertificate{{
			SpiffeIDs:    kind.SpiffeIDsOf("spiffe://" + domain + "/first/" + name),
			MeshIdentity: "id", Root: "root", Until: kind.Time{Time: m.now.Add(time.Hour)},
		}},
	}))
}

// pass executes what is due in each second of a duration.
func (m *mirrored) pass(duration time.Duration) {
	for end := m.now.Add(duration); m.now.Before(end); {
		m.now = m.now.Add(time.Second)
		m.commit(func(*table.Tx) {})
		m.step()
	}
}

// TestABusyMeshRestartsNoWait: the wait for a next SPIFFE ID goes on while the health of another service changes.
func TestABusyMeshRestartsNoWait(t *testing.T) {
	m, first := newChangingProxies(t)
	m.user(kind.MeshServices.Make("default", "other", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "other"}},
		Ports:    []kind.ServicePort{{Port: 8080}}}), m.dataplane("other-1", "10.9.0.1", "other"))
	m.pass(20 * time.Second)
	for i := range 20 {
		o := m.serves("other-1", "10.9.0.1").(*resource.Object[kind.DataplaneListenerStatus])
		o.Spec.Inbounds[0].Unhealthy = i%2 == 0
		m.user(o)
		m.pass(5 * time.Second)
		if m.waits[identityWaitName("default")] != first {
			t.Fatalf("the wait begins again after %d changes", i+1)
		}
	}
}

// TestAJoiningProxyRestartsNoWait: a proxy that joins during a wait is acked by the next one.
func TestAJoiningProxyRestartsNoWait(t *testing.T) {
	m, first := newChangingProxies(t)
	m.addProxyWithFormerID("web-1", "10.0.0.2")
	m.pass(20 * time.Second)
	if m.waits[identityWaitName("default")] != first {
		t.Fatal("the wait begins again when a proxy joins")
	}
	m.barrier.Finish(first)
	m.pass(20 * time.Second)
	row, _ := m.plan.State.Tables.Certificates.Find(m.reader(), "default", "web-0")
	if next := row.Spec.Next; next == nil || !next.Accepted {
		t.Errorf("after the wait the next SPIFFE ID of web-0 is %+v, want an accepted one", next)
	}
	if next := m.waits[identityWaitName("default")]; next == nil || next == first {
		t.Error("no wait begins for web-1")
	}
}
