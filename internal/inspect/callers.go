package inspect

import (
	"slices"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
)

// CallersPage is a page of the callers of a service. The zero value is all of them.
type CallersPage struct {
	Size  int    // 0: all
	After string // the name of the last caller of the page before; empty: the first page
}

// addCallers adds a page of the Dataplanes with an outbound for a service, sorted, and the number of those that reach
// it at its virtual IP.
func (rs *Reports) addCallers(b *Backing, key service.DestinationKey, page CallersPage) {
	var calling []*state.OutboundGroup
	total := 0
	for group := range rs.State.Tables.OutboundGroups(rs.Snapshot, key.Mesh) {
		switch rs.reachOf(group, key) {
		case reachedByOutbound:
			calling, total = append(calling, group), total+group.Size
		case reachedTransparently:
			b.Transparent += group.Size
		}
	}
	b.Callers = rs.callersIn(calling, page)
	if page.Size == 0 {
		return
	}
	b.CallersTotal = total
	if len(b.Callers) > page.Size {
		b.Callers = b.Callers[:page.Size]
		b.CallersNext = b.Callers[page.Size-1]
	}
}

// callersIn returns the names of a page of the Dataplanes of some groups, sorted, and one more where another page
// follows.
func (rs *Reports) callersIn(groups []*state.OutboundGroup, page CallersPage) []string {
	names := []string{}
	for _, group := range groups {
		n := 0
		for dp := range rs.State.Tables.DataplanesOfGroup(rs.Snapshot, group, page.After) {
			names = append(names, dp.Name)
			if n++; page.Size > 0 && n > page.Size {
				break
			}
		}
	}
	slices.Sort(names)
	if page.Size > 0 {
		names = names[:min(len(names), page.Size+1)]
	}
	return names
}

// serviceReach is how the applications of Dataplanes reach a service.
type serviceReach int

const (
	unreached serviceReach = iota
	reachedByOutbound
	reachedTransparently
)

// reachOf returns how the Dataplanes of a group reach a service.
func (rs *Reports) reachOf(group *state.OutboundGroup, key service.DestinationKey) serviceReach {
	mesh, n := key.Mesh, &group.First.Spec.Networking
	for _, out := range rs.State.Proxies.OutboundsOf(rs.r, mesh, n) {
		if out.Destination.ServiceKey() == key {
			return reachedByOutbound
		}
	}
	reach := proxy.ReachKey{Mesh: mesh, Services: rs.State.Proxies.ReachOf(rs.r, mesh, n)}
	if n.TransparentProxying != nil && rs.State.Proxies.ReachesService(rs.r, reach, key) {
		return reachedTransparently
	}
	return unreached
}
