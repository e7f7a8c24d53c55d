package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// DataplaneTables are the Dataplanes.
type DataplaneTables struct {
	Dataplanes Rows[kind.Dataplane]
	// DataplanesBySelector finds Dataplanes by [TagKey], [LabelKey], [PartKey] or, all of a mesh, [MeshKey].
	DataplanesBySelector table.Index[*resource.Object[kind.Dataplane]]
	// IngressesByMesh finds the Dataplanes that are zone ingresses, and EgressesByMesh those that are zone egresses,
	// by their [MeshKey].
	IngressesByMesh, EgressesByMesh table.Index[*resource.Object[kind.Dataplane]]
	// DataplanesByHostName finds the Dataplanes that have a host name which this zone resolves.
	DataplanesByHostName table.Index[*resource.Object[kind.Dataplane]]
	// DataplanesByListener finds the Dataplanes that listen on "MESH/ADDRESS:PORT".
	DataplanesByListener  table.Index[*resource.Object[kind.Dataplane]]
	dataplanesByOutbounds table.Index[*resource.Object[kind.Dataplane]]
	outboundGroups        table.Sum
}

func (t *Tables) addDataplane() {
	t.Dataplanes = addRows(t, kind.Dataplanes)
	t.DataplanesBySelector = table.NewIndex(t.Dataplanes, selectorKeys)
	t.IngressesByMesh = table.NewIndex(t.Dataplanes, ingressKeys)
	t.EgressesByMesh = table.NewIndex(t.Dataplanes, egressKeys)
	t.DataplanesByHostName = table.NewIndex(t.Dataplanes, hostNameKeys[kind.Dataplane](t))
	t.DataplanesByListener = table.NewIndex(t.Dataplanes, listenerKeys)
	t.addOutboundGroups()
}

func egressKeys(dp *resource.Object[kind.Dataplane]) []string {
	if dp.Spec.Networking.ZoneEgress == nil {
		return nil
	}
	return []string{MeshKey(dp.Mesh)}
}

// CurrentInbounds returns the inbounds that have a listener, with the defaults filled in. An inbound whose address is a
// host name has none until the name is resolved.
func CurrentInbounds(n *kind.Networking) []kind.Inbound {
	var inbounds []kind.Inbound
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored && !kind.NeedsLookup(in.Address) {
			inbounds = append(inbounds, in)
		}
	}
	return inbounds
}

func selectorKeys(dp *resource.Object[kind.Dataplane]) []string {
	keys := []string{MeshKey(dp.Mesh), PartKey(dp.Mesh, partOf(dp.Name))}
	seen := map[string]bool{}
	for _, in := range dp.Spec.Networking.Inbound {
		for tag, value := range in.Tags {
			if key := TagKey(dp.Mesh, tag, value); !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	for label, value := range dp.Labels {
		keys = append(keys, LabelKey(dp.Mesh, label, value))
	}
	return keys
}

func listenerKeys(dp *resource.Object[kind.Dataplane]) []string {
	var keys []string
	n := &dp.Spec.Networking
	for _, in := range n.Inbound {
		in = n.Effective(in)
		keys = append(keys, ListenerKey(dp.Mesh, in.Address, in.Port))
	}
	return keys
}

// ListenerKey returns the index key of the listeners on an address and port.
func ListenerKey(mesh, address string, port uint32) string {
	return mesh + "/" + kind.HostPort(address, port)
}

func ingressKeys(dp *resource.Object[kind.Dataplane]) []string {
	if dp.Spec.Networking.ZoneIngress == nil {
		return nil
	}
	return []string{MeshKey(dp.Mesh)}
}

// ProxyAt returns the proxy that listens on an address and port of a mesh.
func (t *Tables) ProxyAt(r *table.Reader, mesh, address string, port uint32) (ProxyKey, bool) {
	for _, dp := range t.DataplanesByListener.List(r, ListenerKey(mesh, address, port)) {
		return ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, true
	}
	for _, name := range t.ResolvedNamesByAddress.List(r, address) {
		for _, dp := range t.DataplanesByListener.List(r, ListenerKey(mesh, name.Name, port)) {
			return ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, true
		}
	}
	return ProxyKey{}, false
}
