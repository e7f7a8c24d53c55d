// Package kindtest has values for tests of kinds. It depends on no kind.
package kindtest

// Two names of resources, of the zones west and east, whose copies have one name by FNV-1a of 64 bits, in every mesh.
// A walk with distinguished points found them in 12 billion hashes, two minutes of one core. The same names in other
// zones do not collide.
const (
	WestName = "payments-of-the-whole-company-in-every-region-2xbtxltfqyfqi"
	EastName = "payments-of-the-whole-company-in-every-region-3tcavpqhrd7yd"
)
