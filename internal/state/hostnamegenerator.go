package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// HostnameGeneratorTables are the HostnameGenerators.
type HostnameGeneratorTables struct {
	Generators Rows[kind.HostnameGenerator]
	// GeneratorsByScope finds all HostnameGenerators under the [MeshKey] of no mesh.
	GeneratorsByScope table.Index[*resource.Object[kind.HostnameGenerator]]
}

func (t *Tables) addHostnameGenerator() {
	t.Generators = addRows(t, kind.HostnameGenerators)
	t.GeneratorsByScope = byMesh(t.Generators)
}
