package kind

import "weft/resource"

// FirstStart exists from the first start of a control plane on a new store until that start has stored its defaults and
// the first administrator's token. The next start continues a first start that failed.
type FirstStart struct{}

// TheFirstStart is the name of the only [FirstStart].
const TheFirstStart = "first"

// FirstStarts is the kind of [FirstStart].
var FirstStarts = &resource.Kind[FirstStart]{
	Info: resource.Info{Name: "FirstStart", Plural: "first-starts", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}
