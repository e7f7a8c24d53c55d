package reconcile

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/pki"
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// stale returns the writes that a new plan of the stored resources still has.
func (m *mirrored) stale() []string {
	fresh := newWorld(m.t, m.plan.Ranges.MeshService.String())
	fresh.now, fresh.plan.Lives = m.now, m.plan.Lives
	changes := fresh.plan.State.Tables.DB.Commit(func(tx *table.Tx) {
		for key, o := range m.rows {
			if fresh.plan.State.Tables.HasRows(key.Kind) {
				fresh.plan.State.Tables.Put(tx, o)
			}
		}
		for gone := range m.plan.absences.All(m.plan.State.Tables.DB.Snapshot()) {
			fresh.plan.absences.Put(tx, gone)
		}
	})
	var all []string
	for _, f := range fresh.plan.families {
		for u, writes := range table.ChangedValues(f.Derived, changes) {
			for _, w := range writes.Do {
				all = append(all, fmt.Sprintf("%s: %+v", u, w))
			}
			if writes.Wait != nil {
				all = append(all, fmt.Sprintf("%s waits for %+v", u, *writes.Wait))
			}
		}
	}
	return all
}

// After any changes, delivered late, together, or only by a new list, after failed writes, and once every proxy has
// acked, the stored rows equal those that a new plan would write.
func TestDrainedWritesEqualWritesFromNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := follow(newWorld(t, "241.0.0.0/30"), false, slog.New(slog.DiscardHandler)) // two addresses
		m.now = time.Now()
		m.plan.Lives = func(instance string) bool { return instance == "here" }
		m.lags = true
		cas := []string{freshCA(m.world, domain), freshCA(m.world, domain)}
		m.user(m.secret("ca", cas[0]), m.secret("provided-1", freshCA(m.world, "default")))
		m.user(kind.Meshes.Make("", "default", kind.Mesh{}))
		for _, name := range []string{"a", "b"} {
			m.user(m.dataplane(name, "10.0.0."+fmt.Sprint(int(name[0])), "web"),
				m.serves(name, "10.0.0."+fmt.Sprint(int(name[0]))))
		}
		oneOf := func(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "of") }
		row := func(t *rapid.T) resource.Any {
			name := oneOf(t, "a", "b", "c")
			address := "10.0.0." + fmt.Sprint(int(name[0]))
			switch rapid.SampledFrom([]int{0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
				18, 19, 19, 20, 21, 22, 23}).Draw(t, "row") {
			case 0:
				o := m.dataplane(name, address, oneOf(t, "web", "shop"))
				o.Envelope().Labels = map[string]string{kind.WorkloadLabel: name}
				return o
			case 16:
				return provided()
			case 17:
				return m.secret("ca", rapid.SampledFrom(append(cas, "broken")).Draw(t, "ca"))
			case 18:
				return kind.DataplaneCertificatesList.Make("default", name,
					kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
						SpiffeIDs:    kind.SpiffeIDsOf("spiffe://" + domain + oneOf(t, "/former", "/other")),
						MeshIdentity: "id", Root: pki.Fingerprints(rapid.SampledFrom(cas).Draw(t, "root"))[0],
						Until: kind.Time{Time: m.now.Add(time.Hour)},
					}}})
			case 19:
				o := webOf(east, []string{nameOf(sni.V1, "east"), nameOf(sni.V2, "east")}[rapid.IntRange(0, 1).Draw(t,
					"first"):]...)
				return o
			case 20:
				return kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: oneOf(t, "v1", "v2")})
			case 21:
				return kind.RetainedSNIRoutes.Make("default", name+"-80", kind.RetainedSNIRoute{
					Kind: oneOf(t, "MeshService", "MeshMultiZoneService"), Service: name, Port: 80,
					Since: kind.Time{Time: m.now}})
			case 22:
				return rapid.SampledFrom([]resource.Any{allows(""), allows("a"), meshWith("provided-1", "provided-1"),
					meshWith("", "provided-1")}).Draw(t, "mesh")
			case 23:
				o := m.serves(name, address).(*resource.Object[kind.DataplaneListenerStatus])
				o.Spec.Inbounds[0].AlsoPlaintext = kind.Time{Time: m.now}
				return o
			case 1:
				return m.serves(name, address)
			case 2:
				o := services(name)[0].(*resource.Object[kind.MeshService])
				o.Spec.Selector.DataplaneTags = map[string]string{kind.ServiceTag: oneOf(t, "web", "shop")}
				o.Spec.Ports[0].Port = 8080
				return o
			case 3:
				return services(name)[1]
			case 4:
				return services(name)[2]
			case 5:
				return generator(name, "{{ .DisplayName }}."+oneOf(t, "mesh", "local"), nil)
			case 6:
				return kind.MeshTrafficPermissions.Make("default", name, kind.MeshTrafficPermission{})
			case 7:
				return m.nackingProxy(name, oneOf(t, "no", "never"),
					kind.Cause{Kind: oneOf(t, "MeshService", "MeshTrafficPermission", "MeshExternalService"),
						Name: oneOf(t, "a", "b")})
			case 8:
				return kind.RetainedEndpointsList.Make("default", name+"-8080", kind.RetainedEndpoints{
					Service: name, Port: 8080, Since: kind.Time{Time: m.now},
					Endpoints: []kind.RetainedEndpoint{{Dataplane: "a", Address: "10.0.0.97", Port: 8080},
						{Dataplane: "b", Address: "10.0.0.98", Port: 8080}}[:rapid.IntRange(1, 2).Draw(t, "held")],
				})
			case 9:
				return ownEgress(name)
			case 10:
				return kind.ZoneEgressCertificatesList.Make("default", name,
					kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
						SpiffeIDs: kind.SpiffeIDsOf("spiffe://default/egress"), Root: "root",
						Until: kind.Time{Time: m.now.Add(time.Minute)},
					}}})
			case 11:
				return identityFor("default", name, nil)
			case 12:
				return m.zoneIngress("in-"+name, "10.0.1.1")
			case 13:
				return m.stream("in-"+name, oneOf(t, "here", "gone", ""))
			case 14:
				return m.passes("in-"+name, "10.0.1.1")
			}
			return kind.MeshTrusts.Make("default", name, kind.MeshTrust{TrustDomain: name + ".local"})
		}
		step := map[string]func(){
			"write":   func() { m.user(row(t)) },
			"remove":  func() { m.removes(row(t).Key()) },
			"of weft": func() { m.removes(m.oneMade(t)) },
			"step":    func() { m.step() },
			"hear":    func() { m.deliver(rapid.IntRange(1, 5).Draw(t, "rows")) },
			"list":    func() { m.list() },
			"fail":    func() { m.fails = !m.fails },
			"time": func() {
				m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{10, 1000, 20_000, 400_000, 4_000_000}).Draw(t,
					"ms")) * time.Millisecond)
				m.commit(func(*table.Tx) {})
			},
			"acks":    func() { m.ackAll() },
			"restart": func() { clear(m.waits); m.takeOver() },
		}
		names := []string{"write", "write", "write", "write", "remove", "remove", "of weft", "step", "step", "hear",
			"hear", "list", "fail", "time", "acks", "restart"}
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "steps") {
				step[rapid.SampledFrom(names).Draw(t, "step")]()
			}
			m.drain()
			if left := m.stale(); len(left) > 0 {
				t.Fatalf("drained, and from nothing there is to write: %v", left)
			}
			m.addresses()
		}
	})
}

// oneMade is a row that the control plane has made, or has not.
func (m *mirrored) oneMade(t *rapid.T) resource.Key {
	of := rapid.SampledFrom([]string{"MeshServiceStatus", "MeshMultiZoneServiceStatus", "MeshExternalServiceStatus",
		"MeshTrafficPermissionStatus", "MeshTrustStatus", "MeshZoneAddress", "MeshTrust", "SigningCA",
		"MeshIdentityStatus", "ChangingIdentities", "EvictedProxies", "SNIWait"}).Draw(t, "kind")
	name := rapid.SampledFrom([]string{"a", "b", "c", "east", "id", "mtls"}).Draw(t, "name")
	return resource.Key{Kind: of, Mesh: "default", Name: name}
}
