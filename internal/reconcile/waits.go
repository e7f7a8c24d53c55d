package reconcile

import (
	"cmp"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rowState returns the state of a row, for a [barrier.Condition] whose acks count for this version of the row only.
func rowState(o resource.Any) string { return o.Key().String() + "@" + o.Envelope().Version }

// maxAwaitedRows is the number of newest rows that a wait checks. A proxy that has acked the newest rows has acked all
// earlier ones.
const maxAwaitedRows = 32

// newestRows returns the keys of the newest rows, at most [maxAwaitedRows].
func newestRows[S any](rows []*resource.Object[S]) []resource.Key {
	newerFirst := func(a, b *resource.Object[S]) int {
		return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name))
	}
	var newest []*resource.Object[S] // sorted
	for _, row := range rows {
		if len(newest) == maxAwaitedRows && newerFirst(row, newest[maxAwaitedRows-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(newest, row, newerFirst)
		newest = slices.Insert(newest[:min(len(newest), maxAwaitedRows-1)], at, row)
	}
	var keys []resource.Key
	for _, row := range newest {
		keys = append(keys, row.Key())
	}
	return keys
}

// syncedRows returns the rows among rows that this control plane syncs to other zones. The result is not nil.
func (p *Plan) syncedRows(rows []resource.Key) []resource.Key {
	way := resource.ZoneToZones
	if p.Global() {
		way = resource.GlobalToZones
	}
	return slices.DeleteFunc(append([]resource.Key{}, rows...), func(key resource.Key) bool {
		return !kind.ByName(key.Kind).Describe().Sync.Has(way)
	})
}

// pendingText returns the end of a sentence that names the proxies or zones which the wait of a name is waiting for;
// empty where none is known.
func (p *Plan) pendingText(r *table.Reader, wait string) string {
	progress := p.Acks.Progress(r, wait)
	switch {
	case progress.Zones != "":
		return "; " + progress.Zones
	case progress.Proxies.Count == 0:
		return ""
	}
	return "; it waits for " + progress.Proxies.String() +
		": see what they reject, or delete those that are gone for good"
}
