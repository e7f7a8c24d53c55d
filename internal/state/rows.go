package state

import (
	"hash/fnv"
	"reflect"
	"strconv"

	"weft/internal/table"
	"weft/resource"
)

// Rows is the table of one kind, keyed by [RowKey]. It is an interface as [table.Derived] is.
type Rows[S any] interface {
	table.Input[*resource.Object[S]]
	// Find returns one resource.
	Find(r *table.Reader, mesh, name string) (*resource.Object[S], bool)
}

// rows is the only [Rows].
type rows[S any] struct {
	table.Input[*resource.Object[S]]
}

func (t rows[S]) Find(r *table.Reader, mesh, name string) (*resource.Object[S], bool) {
	return t.Get(r, RowKey(mesh, name))
}

// RowKey returns the key of a row. Mesh names contain no slash.
func RowKey(mesh, name string) string { return mesh + "/" + name }

// MeshKey returns the index key of everything in a mesh.
func MeshKey(mesh string) string { return mesh + "/" }

// TagKey returns the index key of an inbound tag.
func TagKey(mesh, tag, value string) string { return mesh + "/tag/" + tag + "=" + value }

// LabelKey returns the index key of a label.
func LabelKey(mesh, label, value string) string { return mesh + "/label/" + label + "=" + value }

// MeshParts is the number of parts into which the Dataplanes of a mesh are divided by their names. A value about all
// Dataplanes that merges one value for each part is computed from one part where one Dataplane changes.
const MeshParts = 128

// PartKey returns the index key of the Dataplanes in a part of a mesh.
func PartKey(mesh string, part uint32) string { return mesh + "/part/" + strconv.Itoa(int(part)) }

func partOf(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() % MeshParts
}

func byMesh[S any](rows Rows[S]) table.Index[*resource.Object[S]] {
	return table.NewIndex(rows, func(o *resource.Object[S]) []string { return []string{MeshKey(o.Mesh)} })
}

// ServiceKey identifies the row of a MeshService. A service of a remote zone has another name there than its owner gave
// it.
type ServiceKey struct{ Mesh, Name string }

// IdentityKey identifies a MeshIdentity or, with [kind.MTLSIdentity], the mtls of a mesh.
type IdentityKey struct{ Mesh, Name string }

// DeepEqual compares two derived values by their contents, as [table.NewDerived] needs it for values with pointers.
func DeepEqual[V any](a, b V) bool { return reflect.DeepEqual(a, b) }
