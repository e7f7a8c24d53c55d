package kind

import "weft/resource"

// SigningCA is the authority that signs the leaves of the MeshIdentity of its name, or with the name
// [MTLSIdentity] those of the mtls of its mesh. It follows the authority that users name there, once all proxies trust its root; until then, and while
// that one can't be used, it stays as it is. It outlives its MeshIdentity for as long as somebody holds a
// workload certificate of it.
type SigningCA struct {
	// TrustDomain is the one that all leaves are in.
	TrustDomain string `json:"trustDomain"`
	// Life is how long a workload certificate is valid.
	Life Duration `json:"life"`
	// Authority is the certificates and the private key in PEM; empty until the first one is trusted.
	Authority []byte `json:"authority,omitempty"`
	// Fingerprint is that of Authority's signing certificate.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Backend is the one of the mesh's mtls whose authority it is.
	Backend string `json:"backend,omitempty"`
	// Since is when Authority was seen to sign.
	Since Time `json:"since,omitzero"`
	// Next is the authority whose root is being made known.
	Next *NextCA `json:"next,omitempty"`
	// Roots are those that the control plane has put into the MeshTrust, and takes out again; in PEM.
	Roots []string `json:"roots,omitempty"`
}

// NextCA is an authority that does not sign yet.
type NextCA struct {
	Fingerprint string `json:"fingerprint"`
	Since       Time   `json:"since"`
}

// SigningCAs is the kind of [SigningCA].
var SigningCAs = &resource.Kind[SigningCA]{
	Info: resource.Info{Name: "SigningCA", Plural: "signing-cas", Scope: resource.Mesh, ReadOnly: true, AdminOnly: true, Encrypted: true, Hidden: true},
}
