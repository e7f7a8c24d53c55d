package push

import (
	"cmp"
	"slices"

	"weft/internal/xds"
)

// inOrder sorts resources, and drops nil and duplicates: inbounds with equal rules share the resources of their rules.
func inOrder(resources []*xds.Resource) []*xds.Resource {
	resources = slices.DeleteFunc(resources, func(r *xds.Resource) bool { return r == nil })
	slices.SortFunc(resources, compareNames)
	return slices.CompactFunc(resources, func(a, b *xds.Resource) bool { return compareNames(a, b) == 0 })
}

func compareNames(a, b *xds.Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

func sameResource(a, b *xds.Resource) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || a.Type == b.Type && a.Name == b.Name && a.Version == b.Version
}

func sameResources(a, b []*xds.Resource) bool { return slices.EqualFunc(a, b, sameResource) }

// difference compares two sorted lists. It returns the resources of wanted that are new or have another version, and
// the keys that only old has.
func difference(old, wanted []*xds.Resource) (changed []*xds.Resource, removed []xds.Key) {
	for len(old) > 0 || len(wanted) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(wanted) == 0:
			order = -1
		default:
			order = compareNames(old[0], wanted[0])
		}
		switch {
		case order < 0:
			removed = append(removed, xds.Key{Type: old[0].Type, Name: old[0].Name})
			old = old[1:]
		case order > 0:
			changed = append(changed, wanted[0])
			wanted = wanted[1:]
		default:
			if old[0].Version != wanted[0].Version {
				changed = append(changed, wanted[0])
			}
			old, wanted = old[1:], wanted[1:]
		}
	}
	return changed, removed
}

// edits collects the changes of one commit to each resource set.
type edits map[*xds.ResourceSet]*xds.Change

func (e edits) of(f *xds.ResourceSet) *xds.Change {
	if e[f] == nil {
		e[f] = &xds.Change{Set: f}
	}
	return e[f]
}

func (e edits) add(f *xds.ResourceSet, changed []*xds.Resource, removed []xds.Key) {
	if len(changed)+len(removed) == 0 {
		return
	}
	c := e.of(f)
	c.Changed = append(c.Changed, changed...)
	c.Removed = append(c.Removed, removed...)
}
