package kind

import "weft/resource"

// UnrecordedCertificates are certificates that were renewed while the store took no writes, so that no
// [DataplaneCertificates] has their expiry.
type UnrecordedCertificates struct {
	// Until is the expiry of the last of them. Every stored certificate counts as valid until then.
	Until Time `json:"until"`
}

// TheUnrecordedCertificates is the name of the only [UnrecordedCertificates].
const TheUnrecordedCertificates = "own"

// UnrecordedCertificatesList is the kind of [UnrecordedCertificates].
var UnrecordedCertificatesList = &resource.Kind[UnrecordedCertificates]{
	Info: resource.Info{Name: "UnrecordedCertificates", Plural: "unrecorded-certificates", Scope: resource.Global,
		ReadOnly: true, Hidden: true},
}
