// Package inspect has the read models of the API, the command line and the UI: overviews and insights, the resources
// that configure a proxy, the backends and clients of a service, and the progress of an SNI migration.
//
// A report is computed for its request, from one snapshot of the tables and from the derived values from which
// configuration is generated. Nothing is stored, and nothing is derived from a report. The status of a proxy costs two
// look-ups, that of a service those of its proxies, and that of a mesh one pass over its proxies.
package inspect

import (
	"iter"
	"slices"
	"strings"
	"time"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Reports reads the reports from one snapshot. It caches the values that it derives, so it is for one goroutine, and
// for the reports of one request.
type Reports struct {
	State    *graph.State
	Snapshot *table.Snapshot
	// Modifying counts what MeshProxyPatches change; nil: nothing is counted.
	Modifying Modifying

	r *table.Reader
}

// NewReports returns the reports of a snapshot of a state.
func NewReports(state *graph.State, snapshot *table.Snapshot) *Reports {
	return &Reports{State: state, Snapshot: snapshot, r: table.Eval(snapshot)}
}

// ReportsBy returns the reports that read with a reader, such as that of a derived value. They have no snapshot, so
// only reports about one object with recorded reads are possible.
func ReportsBy(state *graph.State, r *table.Reader) *Reports { return &Reports{State: state, r: r} }

// Reader returns the reader of the reports, which caches derived values. It is for the goroutine of the reports.
func (s *Reports) Reader() *table.Reader { return s.r }

// World is the input of overviews and insights of one request: one snapshot, and state outside the table. All fields
// but Links are required. It is for one goroutine.
type World struct {
	State    *graph.State
	Snapshot *table.Snapshot
	// Meshes are the meshes that overviews and insights are about, with the objects of their reader.
	Meshes access.MeshSet
	// Expired reports whether the lease of a replica has expired, and the time of its last renewal.
	Expired func(instance string) (last time.Time, ended bool)
	// Links returns the zone sync status of each kind, by name, of a zone that is connected to this replica of global.
	// It returns nil for other zones. Optional.
	Links func(zone string) map[string]KindLink
	// Modifying counts what MeshProxyPatches change. Optional.
	Modifying Modifying

	unknown map[string]*Unknown // of the objects of a zone, by its name, once it was read
}

// Resources returns the resources of a kind in the order of their [state.RowKey]: those of one mesh, or of all meshes
// of the world where the mesh is empty. It leaves out what is not of these meshes.
func (w *World) Resources(of, mesh string) iter.Seq[resource.Any] {
	return w.ResourcesAfter(of, mesh, "")
}

// ResourcesAfter returns the [World.Resources] after a [state.RowKey]. "" is before the first.
func (w *World) ResourcesAfter(of, mesh, after string) iter.Seq[resource.Any] {
	d := kind.ByName(of)
	if mesh != "" || w.Meshes.IsAll() {
		return w.filter(w.State.Tables.ResourcesAfter(w.Snapshot, of, mesh, after))
	}
	if d.Describe().Scope != resource.Mesh {
		return w.filter(w.State.Tables.ResourcesAfter(w.Snapshot, of, "", after))
	}
	return func(yield func(resource.Any) bool) {
		for _, mesh := range w.meshesInOrder() {
			for o := range w.State.Tables.ResourcesAfter(w.Snapshot, of, mesh, after) {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// meshesInOrder returns the meshes of a world that has not all of them, in the order of the row keys of their
// resources: "a-b" is before "a", as "a-b/" is before "a/".
func (w *World) meshesInOrder() []string {
	names := w.Meshes.Names()
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(state.MeshKey(a), state.MeshKey(b)) })
	return names
}

// filter leaves out what is not of the meshes of the world.
func (w *World) filter(all iter.Seq[resource.Any]) iter.Seq[resource.Any] {
	return func(yield func(resource.Any) bool) {
		for o := range all {
			if w.Meshes.HasResource(o.Key()) && !yield(o) {
				return
			}
		}
	}
}

// filterRejected returns the rejected items that are of the meshes of the world.
func (w *World) filterRejected(items []kind.RejectedItem) []kind.RejectedItem {
	if w.Meshes.IsAll() {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(i kind.RejectedItem) bool {
		return !w.Meshes.HasResource(resource.Key{Kind: i.Kind, Mesh: i.Mesh, Name: i.Name})
	})
}

// Reports returns the reports of the snapshot.
func (w *World) Reports() *Reports {
	reports := NewReports(w.State, w.Snapshot)
	reports.Modifying = w.Modifying
	return reports
}
