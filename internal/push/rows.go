package push

import (
	"context"
	"time"

	"weft/internal/pki"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Rows reads rows and derived values for the server of the proxies, each from the newest snapshot. Its methods take no
// lock, except those that wait: a snapshot does not change.
type Rows struct{ *published }

// Proxy returns the present state of a proxy.
func (rows Rows) Proxy(key state.ProxyKey) (*proxy.Proxy, bool) {
	p := rows.state.Proxies.Proxy.Get(rows.reader(), key)
	return p, p != nil
}

// Dataplane returns a Dataplane as users wrote it.
func (rows Rows) Dataplane(key state.ProxyKey) (*resource.Object[kind.Dataplane], bool) {
	return rows.state.Tables.Dataplanes.Find(rows.reader(), key.Mesh, key.Name)
}

// Resource returns the Dataplane, ZoneIngress or ZoneEgress of a proxy; nil without one.
func (rows Rows) Resource(key state.ProxyKey) resource.Any {
	return rows.state.Tables.ProxyResource(rows.reader(), key)
}

// NotAdmittedReason returns why the mesh does not admit a proxy, or "" where it does.
func (rows Rows) NotAdmittedReason(key state.ProxyKey) string {
	return rows.state.Identity.NotAdmittedReason(rows.reader(), key)
}

// Networking returns the networking section of a proxy, and false where there is no such proxy.
func (rows Rows) Networking(key state.ProxyKey) (*kind.Networking, bool) {
	return rows.state.Tables.Networking(rows.reader(), key)
}

// ListenerStatus returns the listener status of a proxy.
func (rows Rows) ListenerStatus(key state.ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool) {
	return rows.state.Tables.ListenerStatus(rows.reader(), key)
}

// Insight returns the connections of a proxy, as its DataplaneInsight has them.
func (rows Rows) Insight(key state.ProxyKey) (*resource.Object[kind.DataplaneInsight], bool) {
	return rows.state.Tables.Insight(rows.reader(), key)
}

// Certificates returns the certificates that the proxy of a Dataplane may present.
func (rows Rows) Certificates(key state.ProxyKey) (*resource.Object[kind.DataplaneCertificates], bool) {
	return rows.state.Tables.Certificates.Find(rows.reader(), key.Mesh, key.Name)
}

// HoldsValid reports whether one of the certificates may be valid at a time.
func (rows Rows) HoldsValid(certificates *kind.DataplaneCertificates, at time.Time) bool {
	return rows.state.Tables.HoldsValid(rows.reader(), certificates, at)
}

// EgressCertificates returns the certificates that a ZoneEgress may present: a row for each mesh that gives it an
// identity.
func (rows Rows) EgressCertificates(name string) []*resource.Object[kind.DataplaneCertificates] {
	return rows.state.Tables.EgressCertificatesByName.List(rows.reader(), name)
}

// SigningCA returns the certificate authority of a MeshIdentity.
func (rows Rows) SigningCA(mesh, name string) (*resource.Object[kind.SigningCA], bool) {
	return rows.state.Tables.SigningCAs.Find(rows.reader(), mesh, name)
}

// Secret returns the data of a Secret or GlobalSecret.
func (rows Rows) Secret(key resource.Key) ([]byte, bool) {
	secret, ok := rows.secret(rows.reader(), key)
	if !ok {
		return nil, false
	}
	return secret.Spec.Data, true
}

func (rows Rows) secret(r *table.Reader, key resource.Key) (*resource.Object[kind.Secret], bool) {
	if key.Kind == kind.GlobalSecrets.Name {
		return rows.state.Tables.GlobalSecrets.Find(r, "", key.Name)
	}
	return rows.state.Tables.Secrets.Find(r, key.Mesh, key.Name)
}

// SigningKeys returns the Secrets with the signing keys of a realm's tokens.
func (rows Rows) SigningKeys(realm pki.Realm) []resource.Key {
	var keys []resource.Key
	r := rows.reader()
	for _, index := range []table.Index[*resource.Object[kind.Secret]]{rows.state.Tables.SigningKeys,
		rows.state.Tables.GlobalSigningKeys} {
		for _, secret := range index.List(r, realm.String()) {
			keys = append(keys, secret.Key())
		}
	}
	return keys
}

// MeshExists reports whether there is such a mesh.
func (rows Rows) MeshExists(mesh string) bool {
	_, ok := rows.state.Tables.Meshes.Find(rows.reader(), "", mesh)
	return ok
}

// PodReport returns the report about a Pod of Kubernetes, NAME.NAMESPACE.
func (rows Rows) PodReport(name string) (*resource.Object[kind.PodReport], bool) {
	return rows.state.Tables.PodReports.Find(rows.reader(), "", name)
}

// AwaitSecret returns once the table of this instance has a Secret or GlobalSecret that was just stored, or ctx ends.
func (rows Rows) AwaitSecret(ctx context.Context, key resource.Key) error {
	_, err := rows.await(ctx, func(r *table.Reader) bool {
		_, ok := rows.secret(r, key)
		return ok
	})
	return err
}

// LookedUp waits until every host name in rows has been looked up and no former ingress is dialed in its place, or ctx
// ends. It returns the rows of the names.
func (rows Rows) LookedUp(ctx context.Context, changed []resource.Key) (names []resource.Key) {
	_, _ = rows.await(ctx, func(r *table.Reader) (all bool) { // the caller goes on without the names that take too long
		names, all = rows.state.Routes.LookedUp(r, changed)
		return all
	})
	return names
}
