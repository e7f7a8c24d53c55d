package push

import (
	"cmp"
	"maps"

	"weft/internal/proxy"
	"weft/internal/table"
)

// groupNames has the host names of the proxy groups that are in use, as agents were sent them. The lock of the
// table's writer guards it.
type groupNames struct {
	derived table.Derived[proxy.Group, *HostNames]
	sets    *resourceSets
	sent    map[proxy.Group]*HostNames
	late    map[proxy.Group]bool // groups whose further host names wait
}

func newGroupNames(c *config, sets *resourceSets) *groupNames {
	return &groupNames{
		derived: c.names, sets: sets,
		sent: map[proxy.Group]*HostNames{}, late: map[proxy.Group]bool{},
	}
}

// join makes the names of a group for its first proxy.
func (n *groupNames) join(group proxy.Group) {
	if n.sent[group] == nil {
		n.sent[group] = cmp.Or(n.derived.Pin(group), newNames(nil)) // nil: generation failed
	}
}

// leave drops the names of a group without a proxy.
func (n *groupNames) leave(group proxy.Group) {
	delete(n.sent, group)
	delete(n.late, group)
	n.derived.Unpin(group)
}

// changes reports whether a commit changes or removes host names that agents have. An agent is sent all names at once,
// so the names that wait are published before.
func (n *groupNames) changes(changes *table.Changes) bool {
	for group, names := range table.ChangedValues(n.derived, changes) {
		if names != nil && !names.onlyAdds(n.sent[group]) {
			return true
		}
	}
	return false
}

// publish returns the names, by group, that a commit changes and that agents are to be sent. Names that are only added
// wait while resources of their group wait, since an application that resolves a name may dial it.
func (n *groupNames) publish(changes *table.Changes) map[proxy.Group]*HostNames {
	changed := map[proxy.Group]*HostNames{}
	for group, names := range table.ChangedValues(n.derived, changes) {
		if n.sets.waits(group) {
			n.late[group] = true
			continue
		}
		delete(n.late, group)
		changed[group] = names
	}
	maps.Copy(n.sent, changed)
	return changed
}

// publishLate returns the names, by group, that waited until the resources of their services were published.
func (n *groupNames) publishLate() map[proxy.Group]*HostNames {
	changed := map[proxy.Group]*HostNames{}
	for group := range n.late {
		if n.sets.waits(group) {
			continue
		}
		delete(n.late, group)
		if names, ok := n.derived.Value(group); ok && n.sent[group] != nil {
			changed[group] = names
		}
	}
	maps.Copy(n.sent, changed)
	return changed
}
