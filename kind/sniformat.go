package kind

import "weft/resource"

// SNIFormat is the format that the server names of services are to have everywhere. There is one row at most,
// which is global's, or that of a zone that is alone.
type SNIFormat struct {
	Format string `json:"format" schema:"maxLength=64"`
}

// TheSNIFormat is the name of the one [SNIFormat].
const TheSNIFormat = "sni"

// SNIFormats is the kind of [SNIFormat].
var SNIFormats = &resource.Kind[SNIFormat]{
	Info: resource.Info{Name: "SNIFormat", Plural: "sniformats", Scope: resource.Global, ReadOnly: true, Hidden: true, Sync: resource.GlobalToZones},
}

// SNIWait has the clients that a control plane waits for before it goes on with the server names of its services of a mesh.
// It has a row only where that lasts, named after its zone, or "global".
type SNIWait struct {
	For []string `json:"for" schema:"maxItems=4096 maxLength=1024"` // for people, sorted
}

// SNIWaits is the kind of [SNIWait].
var SNIWaits = &resource.Kind[SNIWait]{
	Info: resource.Info{
		Name: "SNIWait", Plural: "sniwaits", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		Sync: resource.GlobalToZones | resource.ZoneToGlobal,
	},
}
