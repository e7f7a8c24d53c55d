package reconcile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Write is one row that the control plane itself is to write. Exactly one of the first five fields is set.
type Write struct {
	// Put replaces the row that has its version.
	Put resource.Any
	// Create is stored unless the row is there.
	Create resource.Any
	// Delete is the row that goes, in this version.
	Delete resource.Any
	Make   *NewSecret
	// Local is a row of this instance alone, which goes into the table and into no store.
	Local *absence
	// Gone is what a Delete follows from: it is not done while the store has this row.
	Gone resource.Key
}

// Writes are what is to be written of one key: the value of a derived table of writes. Rows that are stored as they are
// to be are not among them, so there are none where all is done.
type Writes struct {
	Do []Write
	// Pace is how long they may wait for further changes.
	Pace time.Duration
	// Notices are logged once each, for as long as they are there and this instance leads.
	Notices []Notice
}

// Notice is a message of the log, with its attributes.
type Notice struct {
	Level   slog.Level
	Message string
	About   []any
}

func (w *Writes) empty() bool { return len(w.Do)+len(w.Notices) == 0 }

// add adds a write that may wait for a time.
func (w *Writes) add(pace time.Duration, write Write) {
	if len(w.Do) == 0 || pace < w.Pace {
		w.Pace = pace
	}
	w.Do = append(w.Do, write)
}

// put adds a row over what the table has, nil where it has none, unless the specs are the same as they are stored.
func put[S any](w *Writes, pace time.Duration, stored, row *resource.Object[S]) {
	switch {
	case stored == nil:
		w.add(pace, Write{Create: row})
	case !same(stored.Spec, row.Spec):
		row.Version = stored.Version
		w.add(pace, Write{Put: row})
	}
}

// same says whether specs are stored alike.
func same[S any](a, b S) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	first, err := json.Marshal(a)
	second, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(first, second)
}

// family is a derived table of writes. Its keys are the Units of one kind.
type family struct {
	*table.Derived[Unit, Writes]
	rows []string // the kinds of the rows that it writes
}

// addFamily makes the derived table of writes of the Units of a kind. rows are the kinds of the rows that it writes and no
// other family does.
func (p *Plan) addFamily(of string, fn func(*table.Reader, Unit) Writes, rows ...string) *family {
	for _, kind := range rows {
		for other, f := range p.families {
			if slices.Contains(f.rows, kind) {
				panic(fmt.Sprintf("reconcile: %s is written by %s and by %s", kind, other, of))
			}
		}
	}
	f := &family{rows: rows}
	f.Derived = table.NewDerived(p.State.DB, "writes of "+of, func(r *table.Reader, u Unit) Writes {
		w := fn(r, u)
		for i := range w.Do {
			f.check(&w.Do[i])
		}
		return w
	}, func(a, b Writes) bool { return reflect.DeepEqual(a, b) })
	p.families[of] = f
	return f
}

// check panics where a family changes a row that it did not say that it writes. A row that is not there has no writer yet.
func (f *family) check(w *Write) {
	for _, o := range []resource.Any{w.Put, w.Delete} {
		if o != nil && !slices.Contains(f.rows, o.Key().Kind) {
			panic(fmt.Sprintf("reconcile: %s writes %s, which is not among its rows", f, o.Key()))
		}
	}
}

// unitOf keeps the Unit of a row's own name.
func unitOf[S any](o *resource.Object[S]) []Unit { return []Unit{Unit(o.Key())} }

// unitOfMesh keeps the Unit of a kind and a row's mesh.
func unitOfMesh[S any](of string) func(*resource.Object[S]) []Unit {
	return func(o *resource.Object[S]) []Unit { return []Unit{{of, o.Mesh, ""}} }
}

// addFamilies makes the derived tables of writes, each with the rows that keep its values.
func (p *Plan) addFamilies() {
	s := p.State
	multiZone := p.addFamily(kind.MeshMultiZoneServices.Name, p.multiZone, kind.MeshMultiZoneServiceStatuses.Name)
	table.KeepFor(s.MultiZoneServices.Input, multiZone.Derived, unitOf)
	trusts := p.addFamily(kind.MeshTrusts.Name, p.trust, kind.MeshTrustStatuses.Name)
	table.KeepFor(s.Trusts.Input, trusts.Derived, unitOf)
	if p.Global() {
		return
	}
	services := p.addFamily(kind.MeshServices.Name, p.service, kind.MeshServices.Name, kind.MeshServiceStatuses.Name)
	table.KeepFor(s.Services.Input, services.Derived, unitOf)
	tags := p.addFamily(TagUnit, p.tag)
	table.KeepFor(s.Dataplanes.Input, tags.Derived, tagsOf)
	external := p.addFamily(kind.MeshExternalServices.Name, p.external, kind.MeshExternalServiceStatuses.Name, kind.ExternalMaterials.Name)
	table.KeepFor(s.ExternalServices.Input, external.Derived, unitOf)
	table.KeepFor(s.ExternalMaterials.Input, external.Derived, func(o *resource.Object[kind.ExternalMaterial]) []Unit {
		return []Unit{{kind.MeshExternalServices.Name, o.Mesh, o.Name}}
	})
	permissions := p.addFamily(kind.MeshTrafficPermissions.Name, p.permission, kind.MeshTrafficPermissionStatuses.Name)
	table.KeepFor(s.Permissions.Input, permissions.Derived, unitOf)
	egresses := p.addFamily(kind.ZoneEgresses.Name, p.egressIdentities, kind.ZoneEgressStatuses.Name)
	table.KeepFor(s.ZoneEgresses.Input, egresses.Derived, func(*resource.Object[kind.ZoneEgress]) []Unit {
		return []Unit{{Kind: kind.ZoneEgresses.Name}}
	})
	egressCertificates := p.addFamily(kind.ZoneEgressCertificatesList.Name, p.egressLeaves, kind.ZoneEgressCertificatesList.Name)
	table.KeepFor(s.EgressCertificates.Input, egressCertificates.Derived, unitOf)
	retained := p.addFamily(kind.RetainedEndpointsList.Name, p.hold, kind.RetainedEndpointsList.Name)
	table.KeepFor(s.RetainedEndpoints.Input, retained.Derived, unitOf)
	for of, g := range p.gates {
		addresses := p.addFamily(of, func(r *table.Reader, u Unit) Writes { return p.address(r, g, u) }, of)
		table.KeepFor(s.Meshes.Input, addresses.Derived, func(o *resource.Object[kind.Mesh]) []Unit { return []Unit{{of, o.Name, ""}} })
		g.keep(addresses)
		table.KeepFor(p.absences, addresses.Derived, func(a absence) []Unit {
			if a.Unit.Kind != of {
				return nil
			}
			return []Unit{a.Unit}
		})
	}
}

// tagsOf keeps the Units of the values of kuma.io/service that a Dataplane has.
func tagsOf(o *resource.Object[kind.Dataplane]) []Unit {
	var units []Unit
	for _, in := range o.Spec.Networking.Inbound {
		u := Unit{TagUnit, o.Mesh, in.Tags[kind.ServiceTag]}
		if u.Name != "" && !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	return units
}
