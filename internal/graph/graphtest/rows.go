package graphtest

import (
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Put puts rows into the tables of a state, in one commit.
func Put(s *graph.State, rows ...resource.Any) {
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range rows {
			s.Tables.Put(tx, o)
		}
	})
}

// CompleteMesh returns a Mesh "m" of a release that knows vouchers of members.
func CompleteMesh(exempt *kind.UnvouchedMembers) *resource.Object[kind.Mesh] {
	mesh := kind.Meshes.Make("", "m", kind.Mesh{UnvouchedMembers: exempt})
	mesh.Vouched.Complete = true
	return mesh
}

// Server returns a Dataplane at an address with tags and labels, registered by a token that claims facts.
func Server(name, address string, tags, labels map[string]string,
	claimed ...string) *resource.Object[kind.Dataplane] {
	dp := kind.Dataplanes.Make("m", name, kind.Dataplane{Networking: kind.Networking{Address: address,
		Inbound: []kind.Inbound{{Port: 80, Tags: tags}}}})
	dp.Labels = labels
	slices.Sort(claimed)
	kind.VouchToken(nil, dp, claimed)
	return dp
}

// ServiceOf returns a MeshService of a namespace and a zone, with a label, created at a second.
func ServiceOf(zone, namespace, name string, created int64,
	labels map[string]string) *resource.Object[kind.MeshService] {
	o := kind.MeshServices.Make("m", name, kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
		Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}})
	o.Labels = map[string]string{kind.DisplayName: name}
	if namespace != "" {
		o.Name, o.Labels[kind.NamespaceLabel] = name+"."+namespace, namespace
	}
	if zone != "east" {
		o.Labels[kind.ZoneLabel], o.Labels[kind.OriginLabel] = zone, kind.OriginZone
		o.Name = kind.SyncedName(&kind.MeshServices.Info, "m", o.Name, kind.Owner{Zone: zone})
	}
	for name, value := range labels {
		o.Labels[name] = value
	}
	o.Created = time.Unix(created, 0)
	return o
}
