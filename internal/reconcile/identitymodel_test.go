package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/barrier"
	"weft/internal/match"
	"weft/internal/pki"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// life is the lifetime of a certificate of the model.
const life = time.Hour

// motion is a mesh whose identities change in any order, while its proxies lag, disconnect and reconnect and the
// control plane restarts.
type motion struct {
	*world
	proxies []*proxy
	clock   int                   // counts events
	begun   map[*barrier.Wait]int // the clock when a wait began
	path    string                // path of the MeshIdentity's SPIFFE IDs
	backend string                // enabled backend of the mtls, for proxies that no MeshIdentity selects
	// permitted is when the operator last wrote the permission, and permits are all writes of it, by the clock.
	permitted time.Time
	permits   []int
}

// proxy has the configuration that it received last.
type proxy struct {
	name, workload string
	disconnected   bool
	told           int // the motion's clock at that time
	toldAt         time.Time
	roots          []string            // fingerprints of its trusted roots
	names          map[string][]string // accepted SPIFFE IDs of each service's servers
	endpoints      []string            // the proxies that it reaches as the service beside
	beside         bool                // it serves beside too
	allows         func(name string) bool
	cert           kind.WorkloadCertificate // its workload certificate
	// the clock when it got its first certificate, or one after the last had expired; no wait includes it before
	began   int
	permits int // number of writes of the permission by then
}

func (p *proxy) valid(now time.Time) bool { return p.cert.Until.After(now) }

// beside is a service that proxies serve now and then, at another port.
const beside = "beside"

func newMotion(t rapid.TB) *motion {
	m := &motion{world: newWorld(t, "241.0.0.0/8"), begun: map[*barrier.Wait]int{}, path: "/first/{{ .Workload }}",
		backend: "provided-1"}
	m.put(m.meshIdentity(), m.secret("ca", freshCA(m.world, domain)), m.mesh())
	for _, backend := range []string{"provided-1", "provided-2"} {
		m.put(m.secret(backend, freshCA(m.world, "default")))
	}
	for _, p := range []*proxy{{name: "a-1", workload: "a"}, {name: "a-2", workload: "a"},
		{name: "b-1", workload: "b"}} {
		m.proxies = append(m.proxies, p)
		m.put(m.written(p))
	}
	m.put(kind.MeshServices.Make("default", beside, kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: beside}},
		Ports:    []kind.ServicePort{{Port: 8081}},
	}))
	for _, workload := range []string{"a", "b"} {
		m.put(kind.MeshServices.Make("default", workload, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: workload}},
			Ports:    []kind.ServicePort{{Port: 8080}},
		}))
	}
	return m
}

// mesh returns the mesh with two backends, of which one signs.
func (m *motion) mesh() resource.Any { return meshWith(m.backend, "provided-1", "provided-2") }

// written returns the Dataplane of a proxy.
func (m *motion) written(p *proxy) *resource.Object[kind.Dataplane] {
	o := m.dataplane(p.name, "10.0.0."+fmt.Sprint(1+slices.Index(m.proxies, p)),
		p.workload).(*resource.Object[kind.Dataplane])
	o.Labels = map[string]string{kind.WorkloadLabel: p.workload}
	if p.beside {
		n := &o.Spec.Networking
		n.Inbound = append(n.Inbound,
			kind.Inbound{Port: 8081, Name: beside, Tags: map[string]string{kind.ServiceTag: beside}})
	}
	return o
}

// serve stores the listener status and the certificate of a proxy.
func (m *motion) serve(p *proxy) {
	row := kind.DataplaneListenerStatuses.Make("default", p.name, kind.DataplaneListenerStatus{})
	n := &m.written(p).Spec.Networking
	for _, in := range n.Inbound {
		row.Spec.Inbounds = append(row.Spec.Inbounds, kind.ServedInbound{Inbound: n.Effective(in), Serial: "5e",
			SpiffeIDs: p.cert.List()})
	}
	m.put(row)
}

// meshIdentity returns a MeshIdentity that selects all proxies.
func (m *motion) meshIdentity() resource.Any {
	o := provided().(*resource.Object[kind.MeshIdentity])
	o.Spec.SpiffeID = &kind.SpiffeIDTemplate{TrustDomain: kind.DefaultTrustDomain, Path: m.path}
	return o
}

// other returns a MeshIdentity with its own CA that selects the proxies of the workload a.
func (m *motion) other() resource.Any {
	return kind.MeshIdentities.Make("default", "other", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{
			Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{kind.WorkloadLabel: "a"}}},
		SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "other.local", Path: "/{{ .Workload }}"},
		Provider: kind.IdentityProvider{Type: "Bundled",
			Bundled: &kind.BundledProvider{
				CertificateParameters: &kind.CertificateParameters{Expiry: kind.Duration(life)}}},
	})
}

// permit writes a permission that allows exactly the SPIFFE IDs in use.
func (m *motion) permit() {
	m.permitted = m.now
	m.permits = append(m.permits, m.clock)
	var names []string
	for _, row := range m.plan.State.Tables.CertificatesByRoot.List(m.reader(), state.MeshKey("default")) {
		names = append(names, row.Spec.SpiffeIDs()...)
	}
	for _, p := range m.proxies {
		names = append(names, p.cert.List()...)
	}
	var allow []kind.CallerMatch
	for _, name := range names {
		allow = append(allow, kind.CallerMatch{SpiffeID: &kind.IDMatch{Type: "Exact", Value: name}})
	}
	m.put(kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{
		Rules: []kind.PermissionRule{{Default: kind.PermissionDefault{Allow: allow}}},
	}))
}

// tell gives a proxy the current configuration.
func (m *motion) tell(p *proxy) {
	r, g := m.reader(), m.plan.State
	p.told, p.toldAt = m.clock, m.now
	p.roots = nil
	for _, d := range g.Identity.Trust.Get(r, "default").Domains {
		for _, root := range d.Roots {
			p.roots = append(p.roots, pki.Fingerprints(root)...)
		}
	}
	p.names = map[string][]string{}
	for _, workload := range []string{"a", "b", beside} {
		p.names[workload] = g.Services.ServiceIdentities.Get(r, state.ServiceKey{Mesh: "default", Name: workload})
	}
	p.endpoints = nil
	for _, e := range g.Services.Endpoints.Get(r, service.DestinationKey{Mesh: "default", Zone: "east", Service: beside,
		Port: 8081}).Endpoints {
		p.endpoints = append(p.endpoints, e.Proxy.Name)
	}
	rules := g.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: "default", Name: p.name}).Listeners[0].Permissions.Allow
	p.allows = func(name string) bool {
		return slices.ContainsFunc(rules, func(rule match.Rule) bool {
			return rule.Has(name) || slices.Contains(rule.OtherIDs, name)
		})
	}
}

// sign gives a proxy its next certificate, where a CA signs it.
func (m *motion) sign(p *proxy) {
	r := m.reader()
	cert := m.plan.State.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: "default", Name: p.name}).Certificate
	if p.disconnected || cert == nil || cert.Authority == "" {
		return
	}
	authority, _ := m.plan.State.Tables.SigningCAs.Find(r, "default", cert.MeshIdentity)
	ca, err := pki.ParseCA(authority.Spec.Authority)
	if err != nil {
		m.t.Fatal(err)
	}
	row := kind.DataplaneCertificatesList.Make("default", p.name, kind.DataplaneCertificates{})
	if stored, ok := m.plan.State.Tables.Certificates.Find(r, "default", p.name); ok {
		*row = *stored
	}
	if !row.Spec.MaySign(cert.SpiffeIDs) {
		m.t.Fatalf("%s wants a certificate of %s, which may not be signed: %+v", p.name, cert.SpiffeID, row.Spec)
	}
	if row.Spec.InUse() == nil || !p.valid(m.now) {
		p.began, p.permits = m.clock, len(m.permits)
	}
	p.cert = kind.WorkloadCertificate{
		SpiffeIDs: cert.SpiffeIDs, MeshIdentity: cert.MeshIdentity,
		Root: pki.Fingerprints(ca.Root())[0], Until: kind.Time{Time: m.now.Add(life)},
	}
	row.Spec.Add(p.cert)
	m.put(row)
	m.serve(p)
}

// write stores at most a number of writes, as a control plane that is killed meanwhile.
func (m *motion) write(u Request, most int) {
	m.execute(u, most)
	for _, wait := range m.waits {
		if _, ok := m.begun[wait]; !ok {
			m.begun[wait] = m.clock
		}
	}
}

// endAckedWaits ends every wait whose proxies have received the configuration since it began.
func (m *motion) endAckedWaits() {
	for name, wait := range m.waits {
		pending := func(p *proxy) bool { return p.valid(m.now) && (p.disconnected || p.told < m.begun[wait]) }
		if !slices.ContainsFunc(m.proxies, pending) {
			delete(m.waits, name)
			m.barrier.Finish(wait)
		}
	}
	m.beginWaits()
	for _, wait := range m.waits {
		if _, ok := m.begun[wait]; !ok {
			m.begun[wait] = m.clock
		}
	}
}

// pass advances the time. Connected proxies receive the configuration and renew their certificates in time.
func (m *motion) pass(d time.Duration) {
	if m.now.Sub(m.permitted) > life/2 {
		m.permit()
	}
	m.now = m.now.Add(d)
	for _, p := range m.proxies {
		if !p.disconnected && m.now.Sub(p.toldAt) > life/2 {
			m.tell(p)
		}
		if p.cert.Until.Sub(m.now) < life/2 {
			m.sign(p)
		}
	}
}

var requests = []Request{
	{"MeshIdentity", "default", kind.MTLSIdentity}, {"MeshService", "default", beside},
	{"MeshIdentity", "default", "id"}, {"MeshIdentity", "default", "other"},
	{"DataplaneCertificates", "default", "a-1"}, {"DataplaneCertificates", "default", "a-2"},
	{"DataplaneCertificates", "default", "b-1"},
	{"MeshService", "default", "a"}, {"MeshService", "default", "b"}, {"ChangingIdentities", "default", ""},
}

// reconcileAll executes all plans.
func (m *motion) reconcileAll() {
	for range 3 {
		for _, u := range requests {
			m.write(u, 100)
		}
	}
}

// knows returns true where a server has received a permission that was written since a client began.
func (m *motion) knows(server, client *proxy) bool {
	return client.permits < len(m.permits) && server.told >= m.permits[client.permits]
}

// check fails unless all proxies with valid certificates accept each other.
func (m *motion) check(t rapid.TB) {
	for _, client := range m.proxies {
		for _, server := range m.proxies {
			latest := max(client.began, server.began)
			if !client.valid(m.now) || !server.valid(m.now) || client.told <= latest || server.told <= latest {
				continue
			}
			switch {
			case !slices.Contains(client.roots, server.cert.Root):
				t.Fatalf("%s does not trust the root of %s's certificate %+v", client.name, server.name, server.cert)
			case !slices.Contains(server.roots, client.cert.Root):
				t.Fatalf("%s does not trust the root of its client %s, %+v", server.name, client.name, client.cert)
			case !slices.ContainsFunc(client.names[server.workload], server.cert.Has):
				t.Fatalf("%s takes %v for %s, and is answered by %s", client.name, client.names[server.workload],
					server.workload, server.cert)
			case slices.Contains(client.endpoints, server.name) &&
				!slices.ContainsFunc(client.names[beside], server.cert.Has):
				t.Fatalf("%s takes %v for %s, is sent to %s, and is answered by %s", client.name, client.names[beside],
					beside, server.name, server.cert)
			case m.knows(server, client) && !slices.ContainsFunc(client.cert.List(), server.allows):
				t.Fatalf("%s denies its client %s", server.name, client.cert)
			}
		}
	}
}

// everybody connects all proxies, gives them the configuration and certificates, and completes all waits.
func (m *motion) everybody() {
	for range 4 {
		m.clock++
		m.reconcileAll()
		for _, p := range m.proxies {
			m.tell(p)
		}
		m.endAckedWaits()
		m.reconcileAll()
		for _, p := range m.proxies {
			m.sign(p)
		}
	}
	m.permit()
	m.clock++
	for _, p := range m.proxies {
		m.tell(p)
	}
}

func TestEveryProxyAcceptsEveryValidCertificate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMotion(t)
		for _, p := range m.proxies {
			p.beside = rapid.Bool().Draw(t, "beside")
			m.put(m.written(p))
		}
		if rapid.Bool().Draw(t, "mtls") {
			m.remove(kind.MeshIdentities.Key("default", "id"))
		}
		m.everybody()
		anyProxy := func() *proxy { return rapid.SampledFrom(m.proxies).Draw(t, "proxy") }
		t.Repeat(map[string]func(*rapid.T){
			"replace the CA": func(*rapid.T) { m.put(m.secret("ca", freshCA(m.world, domain))) },
			"break the CA":   func(*rapid.T) { m.put(m.secret("ca", "broken")) },
			"change the names": func(t *rapid.T) {
				m.path = rapid.SampledFrom([]string{"/first/{{ .Workload }}", "/second/{{ .Workload }}",
					"/one-for-all"}).Draw(t, "path")
				m.put(m.meshIdentity())
			},
			"another MeshIdentity": func(*rapid.T) { m.put(m.other()) },
			"and none again":       func(*rapid.T) { m.remove(kind.MeshIdentities.Key("default", "other")) },
			"the older mutual TLS": func(*rapid.T) { m.remove(kind.MeshIdentities.Key("default", "id")) },
			"a MeshIdentity again": func(*rapid.T) { m.put(m.meshIdentity()) },
			"another backend": func(t *rapid.T) {
				m.backend = rapid.SampledFrom([]string{"provided-1", "provided-2"}).Draw(t, "backend")
				m.put(m.mesh())
			},
			"a service comes or goes": func(*rapid.T) {
				p := anyProxy()
				p.beside = !p.beside
				m.put(m.written(p))
				m.serve(p)
			},
			"write a part": func(t *rapid.T) {
				m.write(rapid.SampledFrom(requests).Draw(t, "request"), rapid.IntRange(0, 2).Draw(t, "most"))
			},
			"write all": func(*rapid.T) { m.reconcileAll() },
			"acks":      func(*rapid.T) { m.endAckedWaits() },
			"go on": func(*rapid.T) {
				m.reconcileAll()
				for _, p := range m.proxies {
					m.tellIfThere(p)
				}
				m.endAckedWaits()
				m.reconcileAll()
				m.sign(anyProxy())
			},
			"restart":   func(*rapid.T) { m.restart() },
			"tell":      func(*rapid.T) { m.tellIfThere(anyProxy()) },
			"sign":      func(*rapid.T) { m.sign(anyProxy()) },
			"leave":     func(*rapid.T) { anyProxy().disconnected = true },
			"come back": func(*rapid.T) { anyProxy().disconnected = false },
			"time goes by": func(t *rapid.T) {
				m.pass(time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute)
			},
			"": func(t *rapid.T) {
				m.clock++
				m.check(t)
			},
		})
	})
}

func (m *motion) tellIfThere(p *proxy) {
	if !p.disconnected {
		m.tell(p)
	}
}

// Other zones have no Dataplanes from which to derive SPIFFE IDs, so they receive a next SPIFFE ID before it may be
// signed.
func TestOtherZonesGetNextSpiffeIDsFirst(t *testing.T) {
	m := newMotion(t)
	m.everybody()
	m.path = "/second/{{ .Workload }}"
	m.put(m.meshIdentity())
	m.reconcileAll()
	told, ok := m.plan.State.Tables.ChangingIdentities.Find(m.reader(), "default", m.plan.State.Tables.Zone)
	if !ok {
		t.Fatal("other zones are not told")
	}
	want := [][]string{
		{"spiffe://default.east.mesh.local/first/a", "spiffe://default.east.mesh.local/second/a"},
		{"spiffe://default.east.mesh.local/first/b", "spiffe://default.east.mesh.local/second/b"},
	}
	if !slices.EqualFunc(told.Spec.Workloads, want, slices.Equal) {
		t.Errorf("other zones are told of %v, want %v", told.Spec.Workloads, want)
	}
	waiting := m.waits[identityWaitName("default")]
	if waiting == nil || !slices.Contains(waiting.ZoneRows, told.Key()) {
		t.Fatalf("no wait includes other zones: %+v", waiting)
	}
	for _, row := range []resource.Key{told.Key(), kind.MeshServices.Key("default", "a"),
		kind.MeshServices.Key("default", "b")} {
		if !slices.Contains(waiting.Rows, row) {
			t.Errorf("it is not waited for %s", row)
		}
	}
	m.everybody()
	m.now = m.now.Add(24 * time.Hour)
	for _, p := range m.proxies {
		m.sign(p)
	}
	m.everybody()
	if _, ok := m.plan.State.Tables.ChangingIdentities.Find(m.reader(), "default", m.plan.State.Tables.Zone); ok {
		t.Error("ChangingIdentities is stored, and no proxy has several SPIFFE IDs")
	}
}

// Changes converge: once all proxies are connected, the wanted SPIFFE IDs and the provided CA are in use. After a day,
// no former ones are left.
func TestAChangeOfEverythingEnds(t *testing.T) {
	for _, other := range []bool{false, true} {
		m := newMotion(t)
		m.everybody()
		replaced := freshCA(m.world, domain)
		m.path = "/second/{{ .Workload }}"
		m.put(m.secret("ca", replaced), m.meshIdentity())
		if other {
			m.put(m.other())
		}
		m.everybody()
		for _, p := range m.proxies {
			wanted := m.plan.State.Identity.Identity.Get(m.reader(), state.ProxyKey{Mesh: "default", Name: p.name})
			if p.cert.SpiffeID != wanted.SpiffeID {
				t.Errorf("%s presents %s still, want %s", p.name, p.cert.SpiffeID, wanted.SpiffeID)
			}
		}
		m.check(t)
		if m.signing() != fingerprint(m.world, replaced) {
			t.Error("the replaced CA signs still")
		}
		m.now = m.now.Add(24 * time.Hour)
		for range 2 { // what leads to a former root goes with the leaves
			for _, p := range m.proxies {
				m.sign(p)
			}
			m.everybody()
		}
		if m.roots() != 1 {
			t.Errorf("%d roots are left, want one", m.roots())
		}
		for _, row := range m.plan.State.Tables.CertificatesChanging.List(m.reader(), state.MeshKey("default")) {
			t.Errorf("%s has the names %v still", row.Name, row.Spec.SpiffeIDs())
		}
	}
}
