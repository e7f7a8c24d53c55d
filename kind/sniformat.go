package kind

import "weft/resource"

// SNIFormat is the configured format of SNIs. It has at most one row, which global owns, or a zone that has not joined
// one.
type SNIFormat struct {
	Format string `json:"format" schema:"maxLength=64"`
}

// TheSNIFormat is the name of the only [SNIFormat].
const TheSNIFormat = "sni"

// SNIFormats is the kind of [SNIFormat].
var SNIFormats = &resource.Kind[SNIFormat]{
	Info: resource.Info{Name: "SNIFormat", Plural: "sniformats", Scope: resource.Global, ReadOnly: true, Hidden: true,
		Sync: resource.GlobalToZones},
}

// SNIWait has the clients for which a control plane waits before the next step of an SNI migration of a mesh. The row
// exists only during the wait. Its name is the zone's, or "global".
type SNIWait struct {
	For []string `json:"for" schema:"maxItems=4096 maxLength=1024"` // descriptions, sorted
}

// SNIWaits is the kind of [SNIWait].
var SNIWaits = &resource.Kind[SNIWait]{
	Info: resource.Info{
		Name: "SNIWait", Plural: "sniwaits", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		Sync: resource.GlobalToZones | resource.ZoneToGlobal,
	},
}
