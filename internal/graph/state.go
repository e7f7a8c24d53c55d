package graph

import (
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// State is the table of one zone, or of global, which has no zone: the rows that came from the store, and
// what is derived of them. The
// order of the fields of [Derived] values is the order of the stages: each reads rows and earlier ones.
type State struct {
	DB   *table.DB
	Zone string
	// DefaultMesh is the mesh whose identity ZoneEgresses have, by the operator's word; empty: there is none. It is
	// set before the first commit.
	DefaultMesh string
	// LocalNetworks are those of which external services may name addresses, though no server outside the mesh has
	// them. It is set before the first commit.
	LocalNetworks []netip.Prefix
	// Alone says that the zone has joined no others, so that all that it says counts. It is set before the first commit.
	Alone bool

	Meshes            Rows[kind.Mesh]
	MeshStatuses      Rows[kind.MeshStatus]
	Dataplanes        Rows[kind.Dataplane]
	ListenerStatuses  Rows[kind.DataplaneListenerStatus]
	Insights          Rows[kind.DataplaneInsight]
	Certificates      Rows[kind.DataplaneCertificates]
	Services          Rows[kind.MeshService]
	ServiceStatuses   Rows[kind.MeshServiceStatus]
	RetainedEndpoints Rows[kind.RetainedEndpoints]
	RetainedSNIRoutes Rows[kind.RetainedSNIRoute]
	Identities        Rows[kind.MeshIdentity]
	SigningCAs        Rows[kind.SigningCA]
	Trusts            Rows[kind.MeshTrust]
	Permissions       Rows[kind.MeshTrafficPermission]
	// TrustStatuses are of the Trusts, PermissionStatuses of the Permissions.
	TrustStatuses      Rows[kind.MeshTrustStatus]
	PermissionStatuses Rows[kind.MeshTrafficPermissionStatus]
	Secrets            Rows[kind.Secret]
	Generators         Rows[kind.HostnameGenerator]
	GlobalSecrets      Rows[kind.Secret]
	// MultiZoneServices and their statuses; ZoneAddresses are the doors of all zones, this one's too, and
	// ZoneIngresses the older form of its own.
	MultiZoneServices           Rows[kind.MeshMultiZoneService]
	MultiZoneServiceStatuses    Rows[kind.MeshMultiZoneServiceStatus]
	ZoneAddresses               Rows[kind.MeshZoneAddress]
	ZoneIngresses               Rows[kind.ZoneIngress]
	ZoneIngressListenerStatuses Rows[kind.DataplaneListenerStatus]
	ZoneIngressInsights         Rows[kind.DataplaneInsight]
	SNIFormats                  Rows[kind.SNIFormat]
	// ExternalServices and their statuses, and the certificates that they name; EgressAddresses are the ways out
	// of this zone, and ZoneEgresses the older form of these.
	ExternalServices           Rows[kind.MeshExternalService]
	ExternalServiceStatuses    Rows[kind.MeshExternalServiceStatus]
	ExternalMaterials          Rows[kind.ExternalMaterial]
	EgressAddresses            Rows[kind.MeshEgressAddress]
	ZoneEgresses               Rows[kind.ZoneEgress]
	ZoneEgressListenerStatuses Rows[kind.DataplaneListenerStatus]
	ZoneEgressInsights         Rows[kind.DataplaneInsight]
	ZoneEgressStatuses         Rows[kind.ZoneEgressStatus]
	// EgressCertificates are what ZoneEgresses may present, of the mesh whose identity it is.
	EgressCertificates Rows[kind.DataplaneCertificates]
	SNIWaits           Rows[kind.SNIWait]
	// ResolvedNames are the IP addresses of host names that resources have as an address.
	ResolvedNames Rows[kind.ResolvedName]

	// Faults are rows of this instance alone, and FaultsByCause finds them by [CauseKey].
	Faults        *table.Input[Fault]
	FaultsByCause *table.Index[Fault]

	// DataplanesBySelector finds Dataplanes by [TagKey], [LabelKey] or, all of a mesh, [MeshKey].
	DataplanesBySelector *table.Index[*resource.Object[kind.Dataplane]]
	// MeshesByScope finds all meshes under the [MeshKey] of no mesh.
	MeshesByScope *table.Index[*resource.Object[kind.Mesh]]
	// IngressesByMesh finds the Dataplanes that are zone ingresses, and ZoneIngressesByScope the ZoneIngresses,
	// by their [MeshKey].
	IngressesByMesh      *table.Index[*resource.Object[kind.Dataplane]]
	ZoneIngressesByScope *table.Index[*resource.Object[kind.ZoneIngress]]
	// DataplanesByHostName and ZoneAddressesByHostName find the resources that have a host name which this zone resolves;
	// ResolvedNamesByAddress finds the names by an IP address.
	DataplanesByHostName    *table.Index[*resource.Object[kind.Dataplane]]
	ZoneAddressesByHostName *table.Index[*resource.Object[kind.MeshZoneAddress]]
	ResolvedNamesByAddress  *table.Index[*resource.Object[kind.ResolvedName]]
	// DataplanesByListener finds the Dataplanes that listen on "MESH/ADDRESS:PORT".
	DataplanesByListener *table.Index[*resource.Object[kind.Dataplane]]
	// InsightsByCause finds the insights of connected proxies that refuse what a resource was made into, by
	// its [CauseKey].
	InsightsByCause *table.Index[*resource.Object[kind.DataplaneInsight]]
	// ServicesByMesh finds the services of a [MeshKey].
	ServicesByMesh *table.Index[*resource.Object[kind.MeshService]]
	// ServicesByTag finds the services that select a value of kuma.io/service, by [TagKey].
	ServicesByTag *table.Index[*resource.Object[kind.MeshService]]
	// ExternalServicesByMesh finds those of a [MeshKey].
	ExternalServicesByMesh *table.Index[*resource.Object[kind.MeshExternalService]]
	// ExternalServicesBySecret finds those that name a Secret, by its [RowKey].
	ExternalServicesBySecret *table.Index[*resource.Object[kind.MeshExternalService]]
	// EgressesByMesh finds the Dataplanes that are zone egresses, and ZoneEgressesByScope the ZoneEgresses, by
	// their [MeshKey].
	EgressesByMesh      *table.Index[*resource.Object[kind.Dataplane]]
	ZoneEgressesByScope *table.Index[*resource.Object[kind.ZoneEgress]]
	// ServicesBySNI, MultiZoneServicesBySNI and ExternalServicesBySNI find who has a server name.
	ServicesBySNI          *table.Index[*resource.Object[kind.MeshService]]
	MultiZoneServicesBySNI *table.Index[*resource.Object[kind.MeshMultiZoneService]]
	ExternalServicesBySNI  *table.Index[*resource.Object[kind.MeshExternalService]]
	// ServicesByLabel finds the services that have a label, by [LabelKey].
	ServicesByLabel *table.Index[*resource.Object[kind.MeshService]]
	// MultiZoneServicesByMesh finds those of a [MeshKey].
	MultiZoneServicesByMesh *table.Index[*resource.Object[kind.MeshMultiZoneService]]
	// ZoneAddressesByMesh finds those of a [MeshKey].
	ZoneAddressesByMesh *table.Index[*resource.Object[kind.MeshZoneAddress]]
	// ListenerStatusesChanging finds who takes connections with mutual TLS and without, by its [MeshKey].
	ListenerStatusesChanging *table.Index[*resource.Object[kind.DataplaneListenerStatus]]
	// GeneratorsByScope finds all HostnameGenerators under the [MeshKey] of no mesh.
	GeneratorsByScope *table.Index[*resource.Object[kind.HostnameGenerator]]
	// RetainedEndpointsByProxy finds what is held of a Dataplane, by its [RowKey].
	RetainedEndpointsByProxy *table.Index[*resource.Object[kind.RetainedEndpoints]]
	// RetainedSNIRoutesByProxy finds what is passed on of a Dataplane still, by its [RowKey], and RetainedSNIRoutesByMesh
	// all of a [MeshKey].
	RetainedSNIRoutesByProxy, RetainedSNIRoutesByMesh *table.Index[*resource.Object[kind.RetainedSNIRoute]]
	// CertificatesByRoot finds who holds leaves that lead to a root, by its [RootKey], and all of a [MeshKey].
	CertificatesByRoot *table.Index[*resource.Object[kind.DataplaneCertificates]]
	// EgressCertificatesByRoot are the same of ZoneEgresses, which EgressCertificatesByName finds by their names.
	EgressCertificatesByRoot, EgressCertificatesByName *table.Index[*resource.Object[kind.DataplaneCertificates]]
	// ChangingIdentities are those of all zones, this one's too; ChangingIdentitiesByMesh finds them by a [MeshKey].
	ChangingIdentities       Rows[kind.ChangingIdentities]
	ChangingIdentitiesByMesh *table.Index[*resource.Object[kind.ChangingIdentities]]
	// EvictedProxies are those of all zones, this one's too; EvictedProxiesByMesh finds them by a [MeshKey].
	EvictedProxies       Rows[kind.EvictedProxies]
	EvictedProxiesByMesh *table.Index[*resource.Object[kind.EvictedProxies]]
	// CertificatesChanging finds who changes its names, by its [MeshKey].
	CertificatesChanging *table.Index[*resource.Object[kind.DataplaneCertificates]]
	IdentitiesByMesh     *table.Index[*resource.Object[kind.MeshIdentity]]
	SigningCAsByMesh     *table.Index[*resource.Object[kind.SigningCA]]
	TrustsByMesh         *table.Index[*resource.Object[kind.MeshTrust]]
	PermissionByMesh     *table.Index[*resource.Object[kind.MeshTrafficPermission]]
	// SigningKeys and GlobalSigningKeys find the Secrets that hold the signing keys of a realm of tokens, by
	// its String.
	SigningKeys, GlobalSigningKeys *table.Index[*resource.Object[kind.Secret]]

	// Membership says who may be in a mesh; nil: everybody. Refused is why a Dataplane may not, where there are
	// rules; [State.NotAdmittedReason] answers it everywhere.
	Membership  *table.Derived[string, *kind.Membership]
	NotAdmitted *table.Derived[ProxyKey, string]
	// EvictedSANs are the DNS names in the certificates of whom a mesh has put out, in all zones, sorted.
	EvictedSANs *table.Derived[string, []string]
	// MTLS is what a mesh's mtls says of its proxies.
	MTLS *table.Derived[string, MTLS]
	// Identity is what a Dataplane is given; nil for a plain one.
	Identity *table.Derived[ProxyKey, *Identity]
	// ReservedIDs are the SPIFFE IDs that ZoneEgresses of this zone have or could be given, by "".
	ReservedIDs *table.Derived[string, []string]
	// EgressChoice is which identities the ZoneEgresses of the zone have, by the zone's name.
	EgressChoice *table.Derived[string, *EgressChoice]
	// EgressIdentity is what each of those is; nil where there is no such one.
	EgressIdentity *table.Derived[IdentityKey, *Identity]
	// Authority is who signs for a MeshIdentity.
	Authority *table.Derived[IdentityKey, Authority]
	// Presented are the names under which a proxy is to be taken, sorted; none for a plain one.
	Presented *table.Derived[ProxyKey, []string]
	// ServiceNames are those of Presented that the mtls of the mesh gives, one for each service of the proxy.
	ServiceNames *table.Derived[ProxyKey, []string]
	// Inbounds are those of a Dataplane, with what its proxy serves; none where the mesh does not admit it.
	Inbounds *table.Derived[ProxyKey, []Member]
	// Moving are the names that a proxy is to have instead of those that it presents; none: it has the right
	// ones, or gets them beside.
	Moving *table.Derived[ProxyKey, kind.SpiffeIDs]
	// Also are the further names for which a rule holds.
	Also *table.Derived[callers, []string]
	// Domains are the trust domains that zones have, under no mesh.
	Domains *table.Derived[string, *identity.Domains]
	// Trust are the roots that the proxies of a mesh trust.
	Trust *table.Derived[string, *Trust]
	// EgressTrust is what the proxies of a mesh believe of the zone's egresses.
	EgressTrust *table.Derived[string, *Trust]
	// Destinations are the services of a mesh, of every kind and zone; Tagged the MeshServices that select a value
	// of kuma.io/service, by its [TagKey]; Labeled those of a kind that have labels; Named the one that a name means,
	// the zero key where there is none. Ports are a service's. They stand between the services and those who reach
	// them, so that what does not change these wakes no class.
	Destinations *table.Derived[string, []DestinationKey]
	Tagged       *table.Derived[string, []DestinationKey]
	Labeled      *table.Derived[labelled, []DestinationKey]
	Named        *table.Derived[called, DestinationKey]
	Ports        *table.Derived[DestinationKey, []uint32]
	// EgressRoute is how the proxies of a mesh leave this zone, and ByEgress whether they leave it so for other zones too.
	EgressRoute *table.Derived[string, *EgressRoute]
	ByEgress    *table.Derived[string, bool]
	// ServiceIdentities are the SPIFFE IDs that a service's servers may present, sorted.
	ServiceIdentities *table.Derived[ServiceKey, []string]
	// Destination is one port of a MeshService; nil where there is none. MultiZone is the same of a
	// MeshMultiZoneService, and made of the former; External that of a MeshExternalService.
	// [State.DestinationOf] answers all.
	Destination, MultiZone, External *table.Derived[DestinationKey, *Destination]
	// Endpoints are the published endpoints of a MeshService's port. Legs are those of a leg of a
	// MeshMultiZoneService's, and ExternalEndpoints those of a MeshExternalService's. [State.EndpointsOf] answers
	// all.
	Endpoints, LocalityEndpoints, ExternalEndpoints *table.Derived[DestinationKey, *Endpoints]
	// ServiceSNIRoutes are the server names of a service, and Passages those of a mesh, by which the zone
	// ingresses pass connections on to what is Passable of their destinations; CrossZoneSNIRoutes those by which the
	// zone egresses do, to the ingresses of other zones that are Beyond.
	// [State.SNIRouteBackends] answers both.
	ServiceSNIRoutes   *table.Derived[DestinationKey, []SNIRoute]
	SNIRoutes          *table.Derived[string, []SNIRoute]
	Forwardable        *table.Derived[DestinationKey, []Endpoint]
	CrossZoneSNIRoutes *table.Derived[string, []SNIRoute]
	RemoteEndpoints    *table.Derived[DestinationKey, []Endpoint]
	// IngressProxies are the zone ingresses of a mesh in this zone; those that serve every mesh under no mesh.
	IngressProxies *table.Derived[string, []ZoneProxy]
	// EgressProxies are the zone egresses, likewise.
	EgressProxies *table.Derived[string, []ZoneProxy]
	// EgressServices are the external services of a mesh, as its zone egresses take connections for them, sorted by key, and
	// Outside is one as they dial it; nil where there is none, or it names certificates that could never be used.
	EgressServices    *table.Derived[string, []EgressService]
	ExternalUpstreams *table.Derived[DestinationKey, *ExternalUpstream]
	// Reached are the destinations of a class, sorted by name.
	Reached *table.Derived[ProxyGroup, []DestinationKey]
	// HostsOf are the host names of a destination, whose key has no port.
	HostsOf *table.Derived[DestinationKey, []Host]
	// Hosts are the host names that the proxies of a class find, sorted; none where it is not transparent.
	Hosts *table.Derived[ProxyGroup, []Host]
	// Proxy is one proxy; nil where there is no such Dataplane.
	Proxy *table.Derived[ProxyKey, *Proxy]
	// Draining are the listeners that a proxy serves though its Dataplane has them no more, and, by their Section,
	// such inbounds of those that it has.
	Draining *table.Derived[ProxyKey, []string]

	services []serviceKind // by DestinationKind
	kinds    map[string]kindRows
}

// Fault is a derived value that can't be made of a resource, because of a bug of ours. The value that was
// made of it last is used meanwhile.
type Fault struct {
	Value string // which one
	Mesh  string
	Cause kind.Cause // the resource
	Panic string
}

// Rows is the table of one kind, keyed by [RowKey].
type Rows[S any] struct {
	*table.Input[*resource.Object[S]]
}

// Find answers one resource.
func (t Rows[S]) Find(r *table.Reader, mesh, name string) (*resource.Object[S], bool) {
	return t.Get(r, RowKey(mesh, name))
}

// RowKey is the key of every row. Mesh names contain no slash.
func RowKey(mesh, name string) string { return mesh + "/" + name }

// MeshKey is the index key of everything in a mesh.
func MeshKey(mesh string) string { return mesh + "/" }

// TagKey is the index key of an inbound tag.
func TagKey(mesh, tag, value string) string { return mesh + "/tag/" + tag + "=" + value }

// LabelKey is the index key of a label.
func LabelKey(mesh, label, value string) string { return mesh + "/label/" + label + "=" + value }

// CauseKey is the index key of a resource of which something is refused.
func CauseKey(mesh string, c kind.Cause) string { return mesh + "/" + c.Kind + "/" + c.Name }

// kindRows puts, removes and finds rows whose kind is known by name only.
type kindRows struct {
	put    func(*table.Tx, resource.Any)
	remove func(*table.Tx, string)
	find   func(*table.Reader, string) (resource.Any, bool)
	from   func(s *table.Snapshot, prefix, after string) iter.Seq[resource.Any]
}

// NewState answers an empty state of a zone.
func NewState(zone string) *State {
	s := &State{DB: table.New(), Zone: zone, kinds: map[string]kindRows{}}
	s.Meshes = addRows(s, kind.Meshes)
	s.MeshStatuses = addRows(s, kind.MeshStatuses)
	s.Dataplanes = addRows(s, kind.Dataplanes)
	s.ListenerStatuses = addRows(s, kind.DataplaneListenerStatuses)
	s.Insights = addRows(s, kind.DataplaneInsights)
	s.Certificates = addRows(s, kind.DataplaneCertificatesList)
	s.Services = addRows(s, kind.MeshServices)
	s.ServiceStatuses = addRows(s, kind.MeshServiceStatuses)
	s.RetainedEndpoints = addRows(s, kind.RetainedEndpointsList)
	s.RetainedSNIRoutes = addRows(s, kind.RetainedSNIRoutes)
	s.Identities = addRows(s, kind.MeshIdentities)
	s.SigningCAs = addRows(s, kind.SigningCAs)
	s.Trusts = addRows(s, kind.MeshTrusts)
	s.Permissions = addRows(s, &kind.MeshTrafficPermissions.Kind)
	s.TrustStatuses = addRows(s, kind.MeshTrustStatuses)
	s.PermissionStatuses = addRows(s, kind.MeshTrafficPermissionStatuses)
	s.Generators = addRows(s, kind.HostnameGenerators)
	s.Secrets = addRows(s, kind.Secrets)
	s.GlobalSecrets = addRows(s, kind.GlobalSecrets)
	s.MultiZoneServices = addRows(s, kind.MeshMultiZoneServices)
	s.MultiZoneServiceStatuses = addRows(s, kind.MeshMultiZoneServiceStatuses)
	s.ZoneAddresses = addRows(s, kind.MeshZoneAddresses)
	s.ChangingIdentities = addRows(s, kind.ChangingIdentitiesList)
	s.EvictedProxies = addRows(s, kind.EvictedProxiesList)
	s.ZoneIngresses = addRows(s, kind.ZoneIngresses)
	s.ZoneIngressListenerStatuses = addRows(s, kind.ZoneIngressListenerStatuses)
	s.ZoneIngressInsights = addRows(s, kind.ZoneIngressInsights)
	s.SNIFormats = addRows(s, kind.SNIFormats)
	s.ExternalServices = addRows(s, kind.MeshExternalServices)
	s.ExternalServiceStatuses = addRows(s, kind.MeshExternalServiceStatuses)
	s.ExternalMaterials = addRows(s, kind.ExternalMaterials)
	s.EgressAddresses = addRows(s, kind.MeshEgressAddresses)
	s.ZoneEgresses = addRows(s, kind.ZoneEgresses)
	s.ZoneEgressListenerStatuses = addRows(s, kind.ZoneEgressListenerStatuses)
	s.ZoneEgressInsights = addRows(s, kind.ZoneEgressInsights)
	s.ZoneEgressStatuses = addRows(s, kind.ZoneEgressStatuses)
	s.EgressCertificates = addRows(s, kind.ZoneEgressCertificatesList)
	s.SNIWaits = addRows(s, kind.SNIWaits)
	s.ResolvedNames = addRows(s, kind.ResolvedNames)
	// These are read by the API alone.
	addRows(s, kind.Zones)
	addRows(s, kind.ZoneInsights)
	addRows(s, kind.MeshIdentityStatuses)

	s.DataplanesBySelector = table.NewIndex(s.Dataplanes.Input, selectorKeys)
	s.MeshesByScope = byMesh(s.Meshes)
	s.IngressesByMesh = table.NewIndex(s.Dataplanes.Input, ingressKeys)
	s.ZoneIngressesByScope = byMesh(s.ZoneIngresses)
	s.ExternalServicesByMesh = byMesh(s.ExternalServices)
	s.ExternalServicesBySecret = table.NewIndex(s.ExternalServices.Input, namedSecrets)
	s.EgressesByMesh = table.NewIndex(s.Dataplanes.Input, egressKeys)
	s.ZoneEgressesByScope = byMesh(s.ZoneEgresses)
	s.DataplanesByHostName = table.NewIndex(s.Dataplanes.Input, hostNameKeys[kind.Dataplane](s))
	s.ZoneAddressesByHostName = table.NewIndex(s.ZoneAddresses.Input, hostNameKeys[kind.MeshZoneAddress](s))
	s.ResolvedNamesByAddress = table.NewIndex(s.ResolvedNames.Input, resolvedKeys)
	s.DataplanesByListener = table.NewIndex(s.Dataplanes.Input, listenerKeys)
	s.Faults = table.NewInput(s.DB, func(f Fault) string { return f.Value })
	s.FaultsByCause = table.NewIndex(s.Faults, func(f Fault) []string { return []string{CauseKey(f.Mesh, f.Cause)} })
	s.InsightsByCause = table.NewIndex(s.Insights.Input, causeKeys)
	s.ServicesByMesh = byMesh(s.Services)
	s.ServicesByTag = table.NewIndex(s.Services.Input, serviceTagKeys)
	s.ServicesBySNI = table.NewIndex(s.Services.Input, sniKeys)
	s.MultiZoneServicesBySNI = table.NewIndex(s.MultiZoneServices.Input, sniKeys)
	s.ExternalServicesBySNI = table.NewIndex(s.ExternalServices.Input, externalSNIKeys)
	s.ServicesByLabel = table.NewIndex(s.Services.Input, serviceLabelKeys)
	s.MultiZoneServicesByMesh = byMesh(s.MultiZoneServices)
	s.ZoneAddressesByMesh = byMesh(s.ZoneAddresses)
	s.ChangingIdentitiesByMesh = byMesh(s.ChangingIdentities)
	s.EvictedProxiesByMesh = byMesh(s.EvictedProxies)
	s.ListenerStatusesChanging = table.NewIndex(s.ListenerStatuses.Input, changingKeys)
	s.GeneratorsByScope = byMesh(s.Generators)
	s.RetainedEndpointsByProxy = table.NewIndex(s.RetainedEndpoints.Input, heldKeys)
	s.RetainedSNIRoutesByProxy = table.NewIndex(s.RetainedSNIRoutes.Input, heldPassageKeys)
	s.RetainedSNIRoutesByMesh = byMesh(s.RetainedSNIRoutes)
	s.CertificatesByRoot = table.NewIndex(s.Certificates.Input, rootKeys)
	s.EgressCertificatesByRoot = table.NewIndex(s.EgressCertificates.Input, rootKeys)
	s.EgressCertificatesByName = table.NewIndex(s.EgressCertificates.Input, egressNameKeys)
	s.CertificatesChanging = table.NewIndex(s.Certificates.Input, movingKeys)
	s.IdentitiesByMesh = byMesh(s.Identities)
	s.SigningCAsByMesh = byMesh(s.SigningCAs)
	s.TrustsByMesh = byMesh(s.Trusts)
	s.PermissionByMesh = byMesh(s.Permissions)
	s.SigningKeys = table.NewIndex(s.Secrets.Input, signingKeyRealms)
	s.GlobalSigningKeys = table.NewIndex(s.GlobalSecrets.Input, signingKeyRealms)

	s.derive()
	return s
}

func addRows[S any](s *State, k *resource.Kind[S]) Rows[S] {
	if s.HasRows(k.Name) {
		panic("graph: " + k.Name + " has a table already")
	}
	rows := Rows[S]{table.NewInput(s.DB, func(o *resource.Object[S]) string { return RowKey(o.Mesh, o.Name) })}
	if s.HasRows(k.Name) {
		panic("graph: two tables for " + k.Name)
	}
	s.kinds[k.Name] = kindRows{
		put:    func(tx *table.Tx, o resource.Any) { rows.Put(tx, o.(*resource.Object[S])) },
		remove: func(tx *table.Tx, key string) { rows.Delete(tx, key) },
		find: func(r *table.Reader, key string) (resource.Any, bool) {
			o, ok := rows.Get(r, key)
			return o, ok
		},
		from: func(s *table.Snapshot, prefix, after string) iter.Seq[resource.Any] {
			return func(yield func(resource.Any) bool) {
				for o := range rows.From(s, prefix, after) {
					if !yield(o) {
						return
					}
				}
			}
		},
	}
	return rows
}

func byMesh[S any](rows Rows[S]) *table.Index[*resource.Object[S]] {
	return table.NewIndex(rows.Input, func(o *resource.Object[S]) []string { return []string{MeshKey(o.Mesh)} })
}

// HasRows says whether rows of a kind have a place in the state: of those that the API shows, all.
func (s *State) HasRows(kind string) bool {
	_, ok := s.kinds[kind]
	return ok
}

// Kinds are the names of those that the state holds, sorted.
func (s *State) Kinds() []string { return slices.Sorted(maps.Keys(s.kinds)) }

// Put stores a resource of any kind that the state holds.
func (s *State) Put(tx *table.Tx, o resource.Any) { s.kinds[o.Key().Kind].put(tx, o) }

// Remove removes one.
func (s *State) Remove(tx *table.Tx, key resource.Key) {
	s.kinds[key.Kind].remove(tx, RowKey(key.Mesh, key.Name))
}

// Find answers a resource of any kind that the state holds.
func (s *State) Find(r *table.Reader, key resource.Key) (resource.Any, bool) {
	return s.kinds[key.Kind].find(r, RowKey(key.Mesh, key.Name))
}

// From answers the resources of a kind that come after a [RowKey], in the order of these keys: of one mesh,
// or of all where the mesh is empty. "" is before the first. It is for readers of snapshots, not for
// derived values.
func (s *State) From(snapshot *table.Snapshot, kind, mesh, after string) iter.Seq[resource.Any] {
	prefix := ""
	if mesh != "" {
		prefix = MeshKey(mesh)
	}
	return s.kinds[kind].from(snapshot, prefix, after)
}

func selectorKeys(dp *resource.Object[kind.Dataplane]) []string {
	keys := []string{MeshKey(dp.Mesh)}
	seen := map[string]bool{}
	for _, in := range dp.Spec.Networking.Inbound {
		for tag, value := range in.Tags {
			if key := TagKey(dp.Mesh, tag, value); !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	for label, value := range dp.Labels {
		keys = append(keys, LabelKey(dp.Mesh, label, value))
	}
	return keys
}

func changingKeys(row *resource.Object[kind.DataplaneListenerStatus]) []string {
	if row.Spec.Changing() {
		return []string{MeshKey(row.Mesh)}
	}
	return nil
}

func listenerKeys(dp *resource.Object[kind.Dataplane]) []string {
	var keys []string
	n := &dp.Spec.Networking
	for _, in := range n.Inbound {
		in = n.Effective(in)
		keys = append(keys, ListenerKey(dp.Mesh, in.Address, in.Port))
	}
	return keys
}

// ListenerKey is the index key of what listens on an address and port.
func ListenerKey(mesh, address string, port uint32) string {
	return mesh + "/" + net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// causeKeys leaves out the proxies that are gone: what they refused last, nobody runs any more.
func causeKeys(o *resource.Object[kind.DataplaneInsight]) []string {
	var keys []string
	for _, refusal := range o.Spec.NACKs {
		for _, cause := range refusal.Causes {
			if key := CauseKey(o.Mesh, cause); o.Spec.Connected() && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func serviceTagKeys(s *resource.Object[kind.MeshService]) []string {
	if value, ok := s.Spec.Selector.DataplaneTags[kind.ServiceTag]; ok {
		return []string{TagKey(s.Mesh, kind.ServiceTag, value)}
	}
	return nil
}

func serviceLabelKeys(s *resource.Object[kind.MeshService]) []string {
	var keys []string
	for label, value := range s.Labels {
		keys = append(keys, LabelKey(s.Mesh, label, value))
	}
	return keys
}

func signingKeyRealms(secret *resource.Object[kind.Secret]) []string {
	if realm, _, ok := identity.SigningKeyOf(secret.Key()); ok {
		return []string{realm.String()}
	}
	return nil
}

func hostnameKeys(mesh string, generators []kind.HostnameGeneratorStatus) []string {
	var keys []string
	for _, g := range generators {
		if g.Hostname != "" {
			keys = append(keys, HostnameKey(mesh, g.Hostname))
		}
	}
	return keys
}

// HostnameKey is the index key of a host name, which is unique in a mesh.
func HostnameKey(mesh, hostname string) string { return mesh + "/" + hostname }
