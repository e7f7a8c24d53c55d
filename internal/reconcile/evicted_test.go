package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// allows returns the mesh with a rule that admits one team, or all proxies where team is empty.
func allows(team string) resource.Any {
	mesh := kind.Mesh{}
	if team != "" {
		mesh.DataplaneProxyMembership =
			&kind.Membership{Allowed: []kind.MembershipRule{{Tags: map[string]string{"team": team}}}}
	}
	return kind.Meshes.Make("", "default", mesh)
}

func ofTeam(name, team string) resource.Any {
	return kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{"team": team}}},
	}})
}

// holds returns a certificate of a Dataplane, valid until a time.
func holds(name string, until time.Time) resource.Any {
	return kind.DataplaneCertificatesList.Make("default", name, kind.DataplaneCertificates{
		Certificates: []kind.WorkloadCertificate{{Root: "r", Until: kind.Time{Time: until}}},
	})
}

// wantDenied compares the names of the proxies whose certificates are denied, sorted.
func (w *world) wantDenied(t *testing.T, when, want string) {
	t.Helper()
	w.reconcile(kind.EvictedProxiesList.Name, "")
	names := w.plan.State.Identity.EvictedSANs.Get(w.reader(), "default")
	short := strings.ReplaceAll(strings.Join(names, " "), ".default.east.dataplane.mesh.local", "")
	if short != want {
		t.Errorf("%s: %q are denied, want %q", when, short, want)
	}
}

// TestWhoseCertificatesAreDenied: the certificates of evicted proxies are denied, for as long as these stay evicted.
func TestWhoseCertificatesAreDenied(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	end := w.now.Add(time.Hour)
	wants := func(when, want string) { t.Helper(); w.wantDenied(t, when, want) }
	w.put(allows(""), ofTeam("web", "a"), holds("web", end), ofTeam("api", "b"), holds("api", end), ofTeam("db", "b"),
		ofTeam("batch", "b"), holds("batch", end))
	wants("without rules", "")
	w.put(allows("a"))
	wants("of team b, except the proxy without a certificate", "api batch")
	w.put(holds("db", end))
	wants("one that was signed just before", "api batch db")
	w.put(ofTeam("db", "a"))
	wants("one that changed its team", "api batch")
	w.remove(kind.Dataplanes.Key("default", "batch"))
	w.remove(kind.DataplaneCertificatesList.Key("default", "batch"))
	wants("one whose Dataplane has gone", "api batch")
	w.put(allows(""))
	wants("without rules again, except the proxy without a Dataplane", "batch")
	w.put(allows("c"))
	w.now = end.Add(kind.ConnectionLife - time.Second)
	wants("until its certificate and its connections have ended", "api batch db web")
	w.now = end.Add(kind.ConnectionLife)
	wants("and no longer", "api db web")
	w.put(allows(""))
	wants("all are in again", "")
}

// TestAnEvictedProxyWithAnUnrecordedCertificate: a certificate that was renewed while the store took no writes is
// denied until it has expired, although the stored one has, also after the proxy's Dataplane has gone.
func TestAnEvictedProxyWithAnUnrecordedCertificate(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	recorded, renewed := w.now.Add(time.Hour), w.now.Add(3*time.Hour)
	w.put(allows(""), ofTeam("web", "a"), holds("web", recorded))
	w.now = w.now.Add(2 * time.Hour) // the store takes no writes until now
	w.put(kind.UnrecordedCertificatesList.Make("", kind.TheUnrecordedCertificates,
		kind.UnrecordedCertificates{Until: kind.Time{Time: renewed}}))
	w.reconcile(kind.DataplaneCertificatesList.Name, "web")
	w.put(allows("b"))
	w.wantDenied(t, "after the outage", "web")
	w.remove(kind.Dataplanes.Key("default", "web"))
	w.remove(kind.DataplaneCertificatesList.Key("default", "web"))
	w.wantDenied(t, "once its Dataplane has gone", "web")
	w.now = renewed.Add(kind.ConnectionLife - time.Second)
	w.wantDenied(t, "until its certificate and its connections have ended", "web")
	w.now = renewed.Add(kind.ConnectionLife)
	w.wantDenied(t, "afterwards", "")
}

// TestAZoneDeniesItsOwnAlone: a zone evicts only its own proxies.
func TestAZoneDeniesItsOwnAlone(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	told := kind.EvictedProxiesList.Make("default", "west-of-global", kind.EvictedProxies{Proxies: []kind.EvictedProxy{
		{Name: "web.default.east.dataplane.mesh.local"}, {Name: "web.default.west.dataplane.mesh.local"},
		{Name: "web.other.west.dataplane.mesh.local"},
	}})
	told.Labels = map[string]string{kind.ZoneLabel: "west", kind.OriginLabel: kind.OriginZone}
	w.put(told)
	if got := fmt.Sprint(w.plan.State.Identity.EvictedSANs.Get(w.reader(),
		"default")); got != "[web.default.west.dataplane.mesh.local]" {
		t.Errorf("the zone west has %s denied", got)
	}
}

// TestTheCertificatesOfAFormerDataplaneAreDenied: a Dataplane that was deleted and written again has no record of the
// certificates of the former one, which its agent may still hold.
func TestTheCertificatesOfAFormerDataplaneAreDenied(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	wants := func(when, want string) { t.Helper(); w.wantDenied(t, when, want) }
	web, api := ofTeam("web", "a"), ofTeam("api", "b")
	web.Envelope().Created, api.Envelope().Created = w.now, w.now
	w.put(allows("b"), web, api)
	wants("in a mesh without certificates", "")
	life := 2 * time.Hour
	bundled := &kind.BundledProvider{CertificateParameters: &kind.CertificateParameters{Expiry: kind.Duration(life)}}
	w.put(kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
		Provider: kind.IdentityProvider{Type: "Bundled", Bundled: bundled}}))
	wants("one that is not admitted", "web")
	end := w.now.Add(life + kind.ConnectionLife)
	w.remove(kind.Dataplanes.Key("default", "web"))
	w.now = end.Add(-time.Second)
	wants("after its Dataplane has gone, until its certificates have ended", "web")
	w.now = end
	wants("and no longer", "")
}
