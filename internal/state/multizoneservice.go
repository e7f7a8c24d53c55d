package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MultiZoneServiceTables are the MeshMultiZoneServices and their statuses.
type MultiZoneServiceTables struct {
	MultiZoneServices        Rows[kind.MeshMultiZoneService]
	MultiZoneServiceStatuses Rows[kind.MeshMultiZoneServiceStatus]
	// MultiZoneServicesByMesh finds the services of a [MeshKey], MultiZoneServicesBySNI those that have an SNI.
	MultiZoneServicesByMesh, MultiZoneServicesBySNI table.Index[*resource.Object[kind.MeshMultiZoneService]]
}

func (t *Tables) addMultiZoneService() {
	t.MultiZoneServices = addRows(t, kind.MeshMultiZoneServices)
	t.MultiZoneServiceStatuses = addRows(t, kind.MeshMultiZoneServiceStatuses)
	t.MultiZoneServicesByMesh = byMesh(t.MultiZoneServices)
	t.MultiZoneServicesBySNI = table.NewIndex(t.MultiZoneServices, sniKeys)
}
