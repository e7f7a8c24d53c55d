package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// OutboundGroup is the Dataplanes of a mesh that state the same destinations: those of their outbounds, whatever the
// addresses, and what a transparent proxy may reach. Their applications reach the same services.
type OutboundGroup struct {
	Size int
	// First is the first of them in the order of their names.
	First *resource.Object[kind.Dataplane]
	key   string
}

func (t *Tables) addOutboundGroups() {
	t.dataplanesByOutbounds = table.NewIndex(t.Dataplanes, func(dp *resource.Object[kind.Dataplane]) []string {
		if key := outboundsKey(dp); key != "" {
			return []string{key}
		}
		return nil
	})
	t.outboundGroups = table.NewSum(t.Dataplanes, func(dp *resource.Object[kind.Dataplane]) (string, int) {
		return outboundsKey(dp), 1
	})
}

// OutboundGroups returns the groups of a mesh, in no order. Dataplanes whose applications reach nothing through their
// proxies are in none. The cost follows the number of groups. It records no read, so derived functions must not use it.
func (t *Tables) OutboundGroups(s *table.Snapshot, mesh string) iter.Seq[*OutboundGroup] {
	return func(yield func(*OutboundGroup) bool) {
		for key, size := range t.outboundGroups.All(s, MeshKey(mesh)) {
			for first := range t.dataplanesByOutbounds.RowsAfter(s, key, "") {
				if !yield(&OutboundGroup{size, first, key}) {
					return
				}
				break
			}
		}
	}
}

// DataplanesOfGroup returns the Dataplanes of a group whose names are greater than after, sorted. It records no read.
func (t *Tables) DataplanesOfGroup(s *table.Snapshot, group *OutboundGroup,
	after string) iter.Seq[*resource.Object[kind.Dataplane]] {
	if after != "" {
		after = RowKey(group.First.Mesh, after)
	}
	return t.dataplanesByOutbounds.RowsAfter(s, group.key, after)
}

// everyService is the end of the key of transparent proxies that may reach every service and have no outbounds.
const everyService = "*"

// outboundsKey returns the key of the group of a Dataplane; empty: its application reaches nothing through its proxy.
func outboundsKey(dp *resource.Object[kind.Dataplane]) string {
	n := &dp.Spec.Networking
	t := n.TransparentProxying
	switch {
	case len(n.Outbound) > 0 || t != nil && (t.ReachableBackends != nil || t.ReachableServices != nil):
		// Owners of Dataplanes choose what is hashed, so the hash is one for which no two equal ones are found.
		sum := sha256.Sum256(statedOutbounds(n))
		return MeshKey(dp.Mesh) + hex.EncodeToString(sum[:16])
	case t != nil:
		return MeshKey(dp.Mesh) + everyService
	}
	return ""
}

// statedOutbounds returns a text of the destinations that the networking of a Dataplane states. It has nothing else.
func statedOutbounds(n *kind.Networking) []byte {
	stated := struct {
		Outbounds   []string
		Transparent bool
		Backends    *kind.ReachableBackends
		Services    []string
	}{Transparent: n.TransparentProxying != nil}
	for i := range n.Outbound {
		out := n.Outbound[i]
		text, _ := json.Marshal([]any{out.BackendRef, out.Tags[kind.ServiceTag]}) // maps are written in order
		stated.Outbounds = append(stated.Outbounds, string(text))
	}
	slices.Sort(stated.Outbounds)
	stated.Outbounds = slices.Compact(stated.Outbounds)
	if t := n.TransparentProxying; t != nil {
		stated.Backends, stated.Services = t.ReachableBackends, t.ReachableServices
	}
	text, _ := json.Marshal(stated) // as above
	return text
}
