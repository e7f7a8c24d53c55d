package reconcile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"weft/internal/barrier"
	"weft/internal/kube/convert"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Write is one write of the control plane. Exactly one of the first six fields is set.
type Write struct {
	// Put replaces the row of its version.
	Put resource.Any
	// Create is stored unless the row exists.
	Create resource.Any
	// Delete is the row to delete, in this version.
	Delete resource.Any
	Make   *NewSecret
	// Local is a row of this instance only, which goes into the table and not into the store.
	Local *absence
	// Status is the status of a route of the Gateway API.
	Status *convert.RouteStatus
	// Owner is the owner of a created row; nil: the usual one, its mesh.
	Owner *resource.Key
	// Report has the events about the object of Kubernetes from which the write follows; nil: none.
	Report *Report
	// UnlessStored is the cause of a Delete: the row is not deleted while the store has this resource.
	UnlessStored resource.Key
}

// Writes are the pending writes of one Request: the value of a derived table. Rows that are stored in their wanted form
// do not occur, so a finished Request has none.
type Writes struct {
	Do []Write
	// Delay is how long the writes may wait for further changes.
	Delay time.Duration
	// Wait is what the writes, or later ones, wait for; nil: nothing. It stays until they are in the table.
	Wait *barrier.Condition
	// Notices are logged once each while they last and this replica is the leader.
	Notices []Notice
	// Events about objects of Kubernetes are reported once each while they last and this replica is the leader.
	Events []convert.Event
}

// isStatus reports whether a write is of a status, which rests on no other write.
func (w *Write) isStatus() bool {
	row := cmp.Or(w.Put, w.Create)
	return row != nil && kind.ByName(row.Key().Kind).Describe().StatusOf != ""
}

// Report are the reasons of the events about an object: of a write that is done, and of one that is rejected.
type Report struct {
	On     convert.Ref
	Done   string // empty: a write that succeeds is no event
	Failed string
}

// Notice is a log line.
type Notice struct {
	Level      slog.Level
	Message    string
	Attributes []any
}

func (w *Writes) empty() bool { return len(w.Do)+len(w.Notices)+len(w.Events) == 0 }

// addWrite adds a write that may be delayed. The shortest delay of all writes applies.
func (w *Writes) addWrite(delay time.Duration, write Write) {
	if len(w.Do) == 0 || delay < w.Delay {
		w.Delay = delay
	}
	w.Do = append(w.Do, write)
}

// putIfDifferent adds a write of row, unless its spec equals the stored one; stored is nil where there is none.
func putIfDifferent[S any](w *Writes, delay time.Duration, stored, row *resource.Object[S]) {
	switch {
	case stored == nil:
		w.addWrite(delay, Write{Create: row})
	case !sameSpec(stored.Spec, row.Spec):
		row.Version = stored.Version
		w.addWrite(delay, Write{Put: row})
	}
}

// sameSpec returns true where two specs have the same stored form.
func sameSpec[S any](a, b S) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	first, err := json.Marshal(a)
	second, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(first, second)
}

// family is a derived table of writes. Its keys are the Requests of one kind.
type family struct {
	table.Derived[Request, Writes]
	rows []string // kinds of the rows that it writes
}

// addFamily adds the derived table of writes for the Requests of a kind. rows are the kinds of the rows that it writes;
// it panics where another family writes one of them.
func (p *Plan) addFamily(of string, fn func(*table.Reader, Request) Writes, rows ...string) *family {
	for _, kind := range rows {
		for other, f := range p.families {
			if slices.Contains(f.rows, kind) {
				panic(fmt.Sprintf("reconcile: %s is written by %s and by %s", kind, other, of))
			}
		}
	}
	f := &family{rows: rows}
	f.Derived = table.NewDerived(p.State.Tables.DB, "writes of "+of, func(r *table.Reader, u Request) Writes {
		w := fn(r, u)
		for i := range w.Do {
			f.checkRows(&w.Do[i])
		}
		return w
	}, func(a, b Writes) bool { return reflect.DeepEqual(a, b) })
	p.families[of] = f
	return f
}

// checkRows panics where a family replaces or deletes a row whose kind it did not declare. A created row has no other
// writer.
func (f *family) checkRows(w *Write) {
	for _, o := range []resource.Any{w.Put, w.Delete} {
		if o != nil && !slices.Contains(f.rows, o.Key().Kind) {
			panic(fmt.Sprintf("reconcile: %s writes %s, which is not among its rows", f, o.Key()))
		}
	}
}

// ownRequest returns the Request of a row's own key.
func ownRequest[S any](o *resource.Object[S]) []Request { return []Request{Request(o.Key())} }

// perMesh returns a function that returns the Request of a kind for the mesh of a row, or for the row that is the mesh.
func perMesh[S any](of string) func(*resource.Object[S]) []Request {
	return func(o *resource.Object[S]) []Request { return []Request{{of, cmp.Or(o.Mesh, o.Name), ""}} }
}

// addFamilies adds the derived tables of writes, each with the rows that keep its values.
func (p *Plan) addFamilies() {
	s := p.State
	multiZone := p.addFamily(kind.MeshMultiZoneServices.Name, p.multiZone, kind.MeshMultiZoneServices.Name,
		kind.MeshMultiZoneServiceStatuses.Name)
	table.KeepFor(s.Tables.MultiZoneServices, multiZone.Derived, ownRequest)
	trusts := p.addFamily(kind.MeshTrusts.Name, p.trust, kind.MeshTrustStatuses.Name)
	table.KeepFor(s.Tables.Trusts, trusts.Derived, ownRequest)
	p.addIdentities()
	failed := p.addFamily(kind.FailedWritesList.Name, p.failedWrites, kind.FailedWritesList.Name)
	table.KeepFor(s.Tables.FailedWrites, failed.Derived, ownRequest)
	table.KeepFor(p.failures, failed.Derived, func(failure) []Request {
		return []Request{Request(kind.FailedWritesList.Key("", kind.TheFailedWrites))}
	})
	snis := p.addFamily(SNIKind, p.waitForSNIs, kind.SNIWaits.Name)
	table.KeepFor(s.Tables.Meshes, snis.Derived, perMesh[kind.Mesh](SNIKind))
	table.KeepFor(s.Tables.SNIWaits, snis.Derived, perMesh[kind.SNIWait](SNIKind))
	exemptions := p.addFamily(ExemptionKind, p.exempt, kind.Meshes.Name)
	table.KeepFor(s.Tables.Meshes, exemptions.Derived, perMesh[kind.Mesh](ExemptionKind))
	if p.Global() {
		return
	}
	p.addProxies()
	services := p.addFamily(kind.MeshServices.Name, p.service, kind.MeshServices.Name, kind.MeshServiceStatuses.Name)
	table.KeepFor(s.Tables.Services, services.Derived, ownRequest)
	tags := p.addFamily(TagKind, p.tag)
	table.KeepFor(s.Tables.Dataplanes, tags.Derived, tagsOf)
	external := p.addFamily(kind.MeshExternalServices.Name, p.external, kind.MeshExternalServiceStatuses.Name,
		kind.ExternalMaterials.Name)
	table.KeepFor(s.Tables.ExternalServices, external.Derived, ownRequest)
	table.KeepFor(s.Tables.ExternalMaterials, external.Derived,
		func(o *resource.Object[kind.ExternalMaterial]) []Request {
			return []Request{{kind.MeshExternalServices.Name, o.Mesh, o.Name}}
		})
	retainedExternal := p.addFamily(kind.RetainedExternalServices.Name, p.retainExternalService,
		kind.RetainedExternalServices.Name)
	table.KeepFor(s.Tables.RetainedExternalServices, retainedExternal.Derived, ownRequest)
	if p.kubernetes != nil {
		p.addKubernetes()
	}
	p.addPolicies()
	egresses := p.addFamily(kind.ZoneEgresses.Name, p.egressIdentities, kind.ZoneEgressStatuses.Name)
	table.KeepFor(s.Tables.ZoneEgresses, egresses.Derived, func(*resource.Object[kind.ZoneEgress]) []Request {
		return []Request{{Kind: kind.ZoneEgresses.Name}}
	})
	egressCertificates := p.addFamily(kind.ZoneEgressCertificatesList.Name, p.egressCertificates,
		kind.ZoneEgressCertificatesList.Name)
	table.KeepFor(s.Tables.EgressCertificates, egressCertificates.Derived, ownRequest)
	retained := p.addFamily(kind.RetainedEndpointsList.Name, p.retainEndpoints, kind.RetainedEndpointsList.Name)
	table.KeepFor(s.Tables.RetainedEndpoints, retained.Derived, ownRequest)
	for of, g := range p.zoneProxyRoles {
		addresses := p.addFamily(of, func(r *table.Reader, u Request) Writes { return p.address(r, g, u) }, of)
		table.KeepFor(s.Tables.Meshes, addresses.Derived, perMesh[kind.Mesh](of))
		g.keepRows(addresses)
		table.KeepFor(p.absences, addresses.Derived, func(a absence) []Request {
			if a.Request.Kind != of {
				return nil
			}
			return []Request{a.Request}
		})
	}
}

// addPolicies adds the statuses of every kind of policies.
func (p *Plan) addPolicies() {
	for _, of := range slices.Sorted(maps.Keys(p.State.Tables.PolicyRows)) {
		rows := p.State.Tables.PolicyRows[of]
		statuses := p.addFamily(of, p.policy, kind.StatusKind(of).Describe().Name)
		rows.Keep(statuses.Derived, func(key resource.Key) any { return Request(key) })
	}
}

// addIdentities adds the writes for MeshIdentities and for the mtls of meshes. Their rows keep the writes too: the row
// of a deleted MeshIdentity goes when no proxy has one of its certificates.
func (p *Plan) addIdentities() {
	s, of := p.State, kind.MeshIdentities.Name
	identities := p.addFamily(of, p.identity, kind.SigningCAs.Name, kind.MeshTrusts.Name,
		kind.MeshIdentityStatuses.Name, kind.MeshStatuses.Name)
	table.KeepFor(s.Tables.Identities, identities.Derived, ownRequest)
	table.KeepFor(s.Tables.SigningCAs, identities.Derived, func(o *resource.Object[kind.SigningCA]) []Request {
		return []Request{{of, o.Mesh, o.Name}}
	})
	table.KeepFor(s.Tables.Meshes, identities.Derived, func(o *resource.Object[kind.Mesh]) []Request {
		return []Request{{of, o.Name, kind.MTLSIdentity}}
	})
	providers := p.addFamily(ProvidersKind, p.providers)
	table.KeepFor(s.Tables.Identities, providers.Derived, perMesh[kind.MeshIdentity](ProvidersKind))
}

// addProxies adds the writes for certificates and listener statuses of this zone's proxies.
func (p *Plan) addProxies() {
	s := p.State
	certificates := p.addFamily(kind.DataplaneCertificatesList.Name, p.certificates,
		kind.DataplaneCertificatesList.Name)
	table.KeepFor(s.Tables.Certificates, certificates.Derived, ownRequest)
	ids := p.addFamily(kind.ChangingIdentitiesList.Name, p.changingIdentities, kind.ChangingIdentitiesList.Name)
	table.KeepFor(s.Tables.Meshes, ids.Derived, perMesh[kind.Mesh](kind.ChangingIdentitiesList.Name))
	table.KeepFor(s.Tables.ChangingIdentities, ids.Derived,
		perMesh[kind.ChangingIdentities](kind.ChangingIdentitiesList.Name))
	evicted := p.addFamily(kind.EvictedProxiesList.Name, p.evicted, kind.EvictedProxiesList.Name)
	table.KeepFor(s.Tables.Meshes, evicted.Derived, perMesh[kind.Mesh](kind.EvictedProxiesList.Name))
	table.KeepFor(s.Tables.EvictedProxies, evicted.Derived,
		perMesh[kind.EvictedProxies](kind.EvictedProxiesList.Name))
	plaintext := p.addFamily(kind.DataplaneListenerStatuses.Name, p.endPlaintext, kind.DataplaneListenerStatuses.Name)
	tls := p.addFamily(PlaintextKind, p.waitForTLS)
	table.KeepFor(s.Tables.ListenerStatuses, plaintext.Derived, whileChanging(ownRequest))
	table.KeepFor(s.Tables.ListenerStatuses, tls.Derived,
		whileChanging(perMesh[kind.DataplaneListenerStatus](PlaintextKind)))
	routes := p.addFamily(kind.RetainedSNIRoutes.Name, p.retainSNIRoute, kind.RetainedSNIRoutes.Name)
	table.KeepFor(s.Tables.RetainedSNIRoutes, routes.Derived, ownRequest)
}

// whileChanging returns the Requests of a listener status while it accepts plaintext beside mutual TLS.
func whileChanging(requests func(*resource.Object[kind.DataplaneListenerStatus]) []Request) func(
	*resource.Object[kind.DataplaneListenerStatus]) []Request {
	return func(row *resource.Object[kind.DataplaneListenerStatus]) []Request {
		if !row.Spec.IsChanging() {
			return nil
		}
		return requests(row)
	}
}

// tagsOf returns the Requests of a Dataplane's kuma.io/service tags, each once. The services of a Pod are made from
// Services.
func tagsOf(o *resource.Object[kind.Dataplane]) []Request {
	if len(podOf(o)) > 0 {
		return nil
	}
	var units []Request
	for _, in := range o.Spec.Networking.Inbound {
		u := Request{TagKind, o.Mesh, in.Tags[kind.ServiceTag]}
		if u.Name != "" && !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	return units
}
