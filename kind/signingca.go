package kind

import "weft/resource"

// SigningCA is the CA that signs the workload certificates of the MeshIdentity of its name or, with the name
// [MTLSIdentity], those of the mesh's mtls. It changes to the CA that users configure once all proxies trust that one's
// root. Until then, and while the configured CA is unusable, it stays unchanged. It outlives its MeshIdentity while a
// proxy holds a workload certificate of it.
type SigningCA struct {
	// TrustDomain is the trust domain of all its workload certificates.
	TrustDomain string `json:"trustDomain"`
	// Life is the validity of a workload certificate.
	Life Duration `json:"life"`
	// Authority is the certificates and the private key in PEM; empty until the first one is trusted.
	Authority []byte `json:"authority,omitempty"`
	// Fingerprint is the fingerprint of Authority's signing certificate.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Backend is the backend of the mesh's mtls with this CA.
	Backend string `json:"backend,omitempty"`
	// Since is the time at which Authority began to sign.
	Since Time `json:"since,omitzero"`
	// Next is the CA whose root is being propagated.
	Next *NextCA `json:"next,omitempty"`
	// Roots are the roots, in PEM, that the control plane has added to the MeshTrust, and removes later.
	Roots []string `json:"roots,omitempty"`
}

// NextCA is a CA that does not sign yet.
type NextCA struct {
	Fingerprint string `json:"fingerprint"`
	Since       Time   `json:"since"`
}

// SigningCAs is the kind of [SigningCA].
var SigningCAs = &resource.Kind[SigningCA]{
	Info: resource.Info{Name: "SigningCA", Plural: "signing-cas", Scope: resource.Mesh, ReadOnly: true, AdminOnly: true,
		Encrypted: true, Hidden: true},
}
