// Package state has the tables of a control plane: the rows of every kind that takes part in configuration, and the
// indexes that find them. A family of tables is one file with its rows, its indexes, their keys and its constructor.
// The package derives only the keys of its indexes, the owner of a row, and the addresses of a host name.
package state

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Tables are the tables of one zone, or of global, which has no zone: the families, and the facts about the zone that
// the operator sets.
type Tables struct {
	DB   *table.DB
	Zone string
	// DefaultMesh is the mesh whose identity ZoneEgresses have, as the operator sets it; empty: it is not set. It is
	// set before the first commit.
	DefaultMesh string
	// SpireSocket is the socket of the SPIRE agent that proxies of this zone find; empty: that of a machine. It is set
	// before the first commit.
	SpireSocket string
	// LocalNetworks are the local networks with addresses that external services may have nevertheless. It is set
	// before the first commit.
	LocalNetworks []netip.Prefix
	// VouchedNetworks are the networks whose addresses every proxy may state for its inbounds. It is set before the
	// first commit.
	VouchedNetworks []netip.Prefix
	// SystemNamespace has the resources of the mesh's operators in a zone on Kubernetes; empty outside Kubernetes. It
	// is set before the first commit.
	SystemNamespace string
	// NamespaceBound is the bound of each namespace but the system namespace. It is set before the first commit.
	NamespaceBound NamespaceBound
	// PatchTypes are the types of extensions that MeshProxyPatches may have beyond the harmless ones. It is set before
	// the first commit.
	PatchTypes []string
	// ZoneProxyNamespaces are the namespaces whose Pods may be zone proxies; none outside Kubernetes. It is set before
	// the first commit.
	ZoneProxyNamespaces []string
	// Standalone is true where the zone has joined no other zones, so that it trusts all of its own statements. It is
	// set before the first commit.
	Standalone bool

	MeshTables
	EvictedProxiesTables
	DataplaneTables
	ProxyStatusTables
	FaultTables
	ExceptionTables
	CertificateTables
	ChangingIdentitiesTables
	MeshIdentityTables
	MeshTrustTables
	SecretTables
	MeshServiceTables
	MultiZoneServiceTables
	ExternalServiceTables
	RetainedEndpointsTables
	RetainedSNIRouteTables
	SNIFormatTables
	GraceTables
	ReferenceGrantTables
	HostnameGeneratorTables
	ZoneProxyTables
	ResolvedNameTables
	PodReportTables
	FailedWritesTables

	// PolicyRows are the policies by kind.
	PolicyRows map[string]PolicyRows

	kinds map[string]kindRows
}

// New returns the empty tables of a zone.
func New(zone string) *Tables {
	t := &Tables{DB: table.New(), Zone: zone, kinds: map[string]kindRows{}, PolicyRows: map[string]PolicyRows{}}
	t.addMesh()
	t.addEvictedProxies()
	t.addDataplane()
	t.addProxyStatus()
	t.addFault()
	t.addExceptions()
	t.addFailedWrites()
	t.addCertificate()
	t.addChangingIdentities()
	t.addMeshIdentity()
	t.addMeshTrust()
	for _, of := range kind.Policies() {
		t.AddPolicies(of)
	}
	t.addSecret()
	t.addMeshService()
	t.addMultiZoneService()
	t.addExternalService()
	t.addRetainedEndpoints()
	t.addRetainedSNIRoute()
	t.addSNIFormat()
	t.addGraces()
	t.addReferenceGrants()
	t.addHostnameGenerator()
	t.addZoneProxy()
	t.addResolvedName()
	t.addPodReports()
	// Only the API reads these.
	addRows(t, kind.Zones)
	addRows(t, kind.ZoneInsights)
	addRows(t, kind.ContainerPatches)
	return t
}

// kindRows puts, removes and finds rows whose kind is known by name only.
type kindRows struct {
	put    func(*table.Tx, resource.Any)
	remove func(*table.Tx, string)
	find   func(*table.Reader, string) (resource.Any, bool)
	from   func(s *table.Snapshot, prefix, after string) iter.Seq[resource.Any]
	count  func(s *table.Snapshot, mesh string) int
}

func addRows[S any](t *Tables, k *resource.Kind[S]) Rows[S] {
	return rows[S]{addTable[*resource.Object[S]](t, k.Name)}
}

// addTable adds the rows of a kind, by [RowKey]. V is the type of a resource of the kind, or every resource.
func addTable[V resource.Any](t *Tables, of string) table.Input[V] {
	if t.HasRows(of) {
		panic("state: " + of + " has a table already")
	}
	rows := table.NewInput(t.DB, func(o V) string { return RowKey(o.Key().Mesh, o.Key().Name) })
	byMesh := table.NewSum(rows, func(o V) (string, int) { return MeshKey(o.Key().Mesh), 1 })
	t.kinds[of] = kindRows{
		put:    func(tx *table.Tx, o resource.Any) { rows.Put(tx, o.(V)) },
		remove: func(tx *table.Tx, key string) { rows.Delete(tx, key) },
		find: func(r *table.Reader, key string) (resource.Any, bool) {
			o, ok := rows.Get(r, key)
			return o, ok
		},
		from: func(s *table.Snapshot, prefix, after string) iter.Seq[resource.Any] {
			return func(yield func(resource.Any) bool) {
				for o := range rows.RowsAfter(s, prefix, after) {
					if !yield(o) {
						return
					}
				}
			}
		},
		count: func(s *table.Snapshot, mesh string) int {
			if mesh == "" {
				return rows.Len(s)
			}
			return byMesh.Get(table.Eval(s), MeshKey(mesh))
		},
	}
	return rows
}

// HasRows returns whether there are rows of a kind. There are rows of all kinds that the API shows.
func (t *Tables) HasRows(kind string) bool {
	_, ok := t.kinds[kind]
	return ok
}

// Kinds returns the names of the kinds of the tables, sorted.
func (t *Tables) Kinds() []string { return slices.Sorted(maps.Keys(t.kinds)) }

// Put stores a resource of any kind of the tables.
func (t *Tables) Put(tx *table.Tx, o resource.Any) { t.kinds[o.Key().Kind].put(tx, o) }

// Remove removes a resource of any kind of the tables.
func (t *Tables) Remove(tx *table.Tx, key resource.Key) {
	t.kinds[key.Kind].remove(tx, RowKey(key.Mesh, key.Name))
}

// Find returns a resource of any kind of the tables.
func (t *Tables) Find(r *table.Reader, key resource.Key) (resource.Any, bool) {
	return t.kinds[key.Kind].find(r, RowKey(key.Mesh, key.Name))
}

// ResourcesAfter returns the resources of a kind after a [RowKey], in the order of these keys: of one mesh, or of all
// where the mesh is empty. "" is before the first. It records no read, so derived functions must not use it.
func (t *Tables) ResourcesAfter(snapshot *table.Snapshot, kind, mesh, after string) iter.Seq[resource.Any] {
	prefix := ""
	if mesh != "" {
		prefix = MeshKey(mesh)
	}
	return t.kinds[kind].from(snapshot, prefix, after)
}

// Count returns the number of resources of a kind: of one mesh, or of all where the mesh is empty. It costs the same
// however many there are. It records no read, so derived functions must not use it.
func (t *Tables) Count(snapshot *table.Snapshot, kind, mesh string) int {
	return t.kinds[kind].count(snapshot, mesh)
}
