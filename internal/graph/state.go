package graph

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"weft/internal/pki"
	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// State is the table of one zone, or of global, which has no zone: the rows of the store, and the values derived from
// them. The order of the [Derived] fields is the order of the stages: each reads rows and earlier ones.
type State struct {
	DB   *table.DB
	Zone string
	// DefaultMesh is the mesh whose identity ZoneEgresses have, as the operator sets it; empty: it is not set. It is
	// set before the first commit.
	DefaultMesh string
	// LocalNetworks are the local networks with addresses that external services may have nevertheless. It is set
	// before the first commit.
	LocalNetworks []netip.Prefix
	// Alone is true where the zone has joined no other zones, so that it trusts all of its own statements. It is set
	// before the first commit.
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
	// TrustStatuses are the statuses of Trusts, PermissionStatuses those of Permissions.
	TrustStatuses      Rows[kind.MeshTrustStatus]
	PermissionStatuses Rows[kind.MeshTrafficPermissionStatus]
	Secrets            Rows[kind.Secret]
	Generators         Rows[kind.HostnameGenerator]
	GlobalSecrets      Rows[kind.Secret]
	// MultiZoneServices and their statuses. ZoneAddresses are the ingress addresses of all zones, and ZoneIngresses the
	// older form of this zone's.
	MultiZoneServices           Rows[kind.MeshMultiZoneService]
	MultiZoneServiceStatuses    Rows[kind.MeshMultiZoneServiceStatus]
	ZoneAddresses               Rows[kind.MeshZoneAddress]
	ZoneIngresses               Rows[kind.ZoneIngress]
	ZoneIngressListenerStatuses Rows[kind.DataplaneListenerStatus]
	ZoneIngressInsights         Rows[kind.DataplaneInsight]
	SNIFormats                  Rows[kind.SNIFormat]
	// ExternalServices and their statuses, and the certificates that they refer to. EgressAddresses are the egresses of
	// this zone, and ZoneEgresses their older form.
	ExternalServices           Rows[kind.MeshExternalService]
	ExternalServiceStatuses    Rows[kind.MeshExternalServiceStatus]
	ExternalMaterials          Rows[kind.ExternalMaterial]
	EgressAddresses            Rows[kind.MeshEgressAddress]
	ZoneEgresses               Rows[kind.ZoneEgress]
	ZoneEgressListenerStatuses Rows[kind.DataplaneListenerStatus]
	ZoneEgressInsights         Rows[kind.DataplaneInsight]
	ZoneEgressStatuses         Rows[kind.ZoneEgressStatus]
	// EgressCertificates are the certificates that ZoneEgresses may present, by the mesh of their identity.
	EgressCertificates Rows[kind.DataplaneCertificates]
	SNIWaits           Rows[kind.SNIWait]
	// ResolvedNames are the IP addresses of the host names in addresses of resources.
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
	// DataplanesByHostName and ZoneAddressesByHostName find the resources that have a host name which this zone
	// resolves; ResolvedNamesByAddress finds the names by an IP address.
	DataplanesByHostName    *table.Index[*resource.Object[kind.Dataplane]]
	ZoneAddressesByHostName *table.Index[*resource.Object[kind.MeshZoneAddress]]
	ResolvedNamesByAddress  *table.Index[*resource.Object[kind.ResolvedName]]
	// DataplanesByListener finds the Dataplanes that listen on "MESH/ADDRESS:PORT".
	DataplanesByListener *table.Index[*resource.Object[kind.Dataplane]]
	// InsightsByCause finds the insights of connected proxies that NACK the configuration of a resource, by its
	// [CauseKey].
	InsightsByCause *table.Index[*resource.Object[kind.DataplaneInsight]]
	// ServicesByMesh finds the services of a [MeshKey].
	ServicesByMesh *table.Index[*resource.Object[kind.MeshService]]
	// ServicesByTag finds the services that select a value of kuma.io/service, by [TagKey].
	ServicesByTag *table.Index[*resource.Object[kind.MeshService]]
	// ExternalServicesByMesh finds the external services of a [MeshKey].
	ExternalServicesByMesh *table.Index[*resource.Object[kind.MeshExternalService]]
	// ExternalServicesBySecret finds the external services that refer to a Secret, by its [RowKey].
	ExternalServicesBySecret *table.Index[*resource.Object[kind.MeshExternalService]]
	// EgressesByMesh finds the Dataplanes that are zone egresses, and ZoneEgressesByScope the ZoneEgresses, by
	// their [MeshKey].
	EgressesByMesh      *table.Index[*resource.Object[kind.Dataplane]]
	ZoneEgressesByScope *table.Index[*resource.Object[kind.ZoneEgress]]
	// ServicesBySNI, MultiZoneServicesBySNI and ExternalServicesBySNI find the owners of an SNI.
	ServicesBySNI          *table.Index[*resource.Object[kind.MeshService]]
	MultiZoneServicesBySNI *table.Index[*resource.Object[kind.MeshMultiZoneService]]
	ExternalServicesBySNI  *table.Index[*resource.Object[kind.MeshExternalService]]
	// ServicesByLabel finds the services that have a label, by [LabelKey].
	ServicesByLabel *table.Index[*resource.Object[kind.MeshService]]
	// MultiZoneServicesByMesh finds the services of a [MeshKey].
	MultiZoneServicesByMesh *table.Index[*resource.Object[kind.MeshMultiZoneService]]
	// ZoneAddressesByMesh finds the zone addresses of a [MeshKey].
	ZoneAddressesByMesh *table.Index[*resource.Object[kind.MeshZoneAddress]]
	// ListenerStatusesChanging finds the proxies that accept mutual TLS and plaintext, by their [MeshKey].
	ListenerStatusesChanging *table.Index[*resource.Object[kind.DataplaneListenerStatus]]
	// GeneratorsByScope finds all HostnameGenerators under the [MeshKey] of no mesh.
	GeneratorsByScope *table.Index[*resource.Object[kind.HostnameGenerator]]
	// RetainedEndpointsByProxy finds the retained endpoints of a Dataplane, by its [RowKey].
	RetainedEndpointsByProxy *table.Index[*resource.Object[kind.RetainedEndpoints]]
	// RetainedSNIRoutesByProxy finds the retained SNI routes of a Dataplane, by its [RowKey], and
	// RetainedSNIRoutesByMesh all of a [MeshKey].
	RetainedSNIRoutesByProxy, RetainedSNIRoutesByMesh *table.Index[*resource.Object[kind.RetainedSNIRoute]]
	// CertificatesByRoot finds the proxies with certificates below a root, by its [RootKey], and all of a [MeshKey].
	CertificatesByRoot *table.Index[*resource.Object[kind.DataplaneCertificates]]
	// EgressCertificatesByRoot is the same for ZoneEgresses. EgressCertificatesByName finds them by the ZoneEgress.
	EgressCertificatesByRoot, EgressCertificatesByName *table.Index[*resource.Object[kind.DataplaneCertificates]]
	// ChangingIdentities are the changing identities of all zones, including this one; ChangingIdentitiesByMesh finds
	// them by a [MeshKey].
	ChangingIdentities       Rows[kind.ChangingIdentities]
	ChangingIdentitiesByMesh *table.Index[*resource.Object[kind.ChangingIdentities]]
	// EvictedProxies are the evicted proxies of all zones, including this one; EvictedProxiesByMesh finds them by a
	// [MeshKey].
	EvictedProxies       Rows[kind.EvictedProxies]
	EvictedProxiesByMesh *table.Index[*resource.Object[kind.EvictedProxies]]
	// CertificatesChanging finds the proxies that change their SPIFFE IDs, by their [MeshKey].
	CertificatesChanging *table.Index[*resource.Object[kind.DataplaneCertificates]]
	IdentitiesByMesh     *table.Index[*resource.Object[kind.MeshIdentity]]
	SigningCAsByMesh     *table.Index[*resource.Object[kind.SigningCA]]
	TrustsByMesh         *table.Index[*resource.Object[kind.MeshTrust]]
	PermissionByMesh     *table.Index[*resource.Object[kind.MeshTrafficPermission]]
	// SigningKeys and GlobalSigningKeys find the Secrets with the signing keys of a realm of tokens, by its String.
	SigningKeys, GlobalSigningKeys *table.Index[*resource.Object[kind.Secret]]

	// Membership is the membership rules of a mesh; nil: every Dataplane may join. NotAdmitted is why a Dataplane may
	// not, where there are rules; [State.NotAdmittedReason] returns it for any proxy.
	Membership  *table.Derived[string, *kind.Membership]
	NotAdmitted *table.Derived[ProxyKey, string]
	// EvictedSANs are the DNS SANs of the proxies that a mesh has evicted, in all zones, sorted.
	EvictedSANs *table.Derived[string, []string]
	// MTLS is the effect of a mesh's mtls on its proxies.
	MTLS *table.Derived[string, MTLS]
	// Identity is the identity of a Dataplane; nil for a plaintext one.
	Identity *table.Derived[ProxyKey, *Identity]
	// ReservedIDs are the SPIFFE IDs that ZoneEgresses of this zone have or could be given, by "".
	ReservedIDs *table.Derived[string, []string]
	// EgressChoice is the choice of identities of the zone's ZoneEgresses, by the zone's name.
	EgressChoice *table.Derived[string, *EgressChoice]
	// EgressIdentity is each of those identities; nil where it does not exist.
	EgressIdentity *table.Derived[IdentityKey, *Identity]
	// Authority is the CA that signs for a MeshIdentity.
	Authority *table.Derived[IdentityKey, Authority]
	// Presented are the SPIFFE IDs that clients accept of a proxy, sorted; none for a plaintext one.
	Presented *table.Derived[ProxyKey, []string]
	// ServiceNames are the Presented IDs that the mtls of the mesh gives, one for each service of the proxy.
	ServiceNames *table.Derived[ProxyKey, []string]
	// Inbounds are the inbounds of a Dataplane, with their listener status; none where the mesh does not admit it.
	Inbounds *table.Derived[ProxyKey, []Member]
	// Moving are the SPIFFE IDs that will replace the presented ones of a proxy; none where nothing is replaced.
	Moving *table.Derived[ProxyKey, kind.SpiffeIDs]
	// Also are the further SPIFFE IDs that a rule matches.
	Also *table.Derived[callers, []string]
	// Domains are the trust domains that zones have, under no mesh.
	Domains *table.Derived[string, *pki.Domains]
	// Trust are the roots that the proxies of a mesh trust.
	Trust *table.Derived[string, *Trust]
	// EgressTrust is the set of roots with which the proxies of a mesh validate the zone's egresses.
	EgressTrust *table.Derived[string, *Trust]
	// Destinations are the services of a mesh, of every kind and zone. Tagged are the MeshServices that select a value
	// of kuma.io/service, by its [TagKey]. Labeled are the services of a kind that have labels. Named is the service
	// with a name, the zero key where there is none. Ports are a service's ports. These values separate the services
	// from their clients: a change of a service that leaves them equal recomputes no proxy group.
	Destinations *table.Derived[string, []DestinationKey]
	Tagged       *table.Derived[string, []DestinationKey]
	Labeled      *table.Derived[labelQuery, []DestinationKey]
	Named        *table.Derived[nameQuery, DestinationKey]
	Ports        *table.Derived[DestinationKey, []uint32]
	// EgressRoute is the route of the proxies of a mesh out of this zone. ByEgress is whether they also use it for
	// remote zones.
	EgressRoute *table.Derived[string, *EgressRoute]
	ByEgress    *table.Derived[string, bool]
	// ServiceIdentities are the SPIFFE IDs that a service's servers may present, sorted.
	ServiceIdentities *table.Derived[ServiceKey, []string]
	// Destination is one port of a MeshService; nil where there is none. MultiZone is the same for a
	// MeshMultiZoneService, derived from the former, and External for a MeshExternalService. [State.DestinationOf]
	// returns any of them.
	Destination, MultiZone, External *table.Derived[DestinationKey, *Destination]
	// Routes are the routes of destinations; nil where there is none.
	Routes *table.Derived[DestinationKey, *Route]
	// Endpoints are the published endpoints of a MeshService's port. LocalityEndpoints are those of a locality of a
	// MeshMultiZoneService's port, and ExternalEndpoints those of a MeshExternalService's. [State.EndpointsOf] returns
	// any of them.
	Endpoints, LocalityEndpoints, ExternalEndpoints *table.Derived[DestinationKey, *Endpoints]
	// ServiceSNIRoutes are the SNI routes of a service, and SNIRoutes those of a mesh, on which the zone ingresses
	// forward to the Forwardable endpoints of a destination. CrossZoneSNIRoutes are those on which the zone egresses
	// forward to ingresses of remote zones, the RemoteEndpoints. [State.SNIRouteBackends] returns either.
	ServiceSNIRoutes   *table.Derived[DestinationKey, []SNIRoute]
	SNIRoutes          *table.Derived[string, []SNIRoute]
	Forwardable        *table.Derived[DestinationKey, []Endpoint]
	CrossZoneSNIRoutes *table.Derived[string, []SNIRoute]
	RemoteEndpoints    *table.Derived[DestinationKey, []Endpoint]
	// IngressProxies are the zone ingresses of a mesh in this zone; those that serve every mesh under no mesh.
	IngressProxies *table.Derived[string, []ZoneProxy]
	// EgressProxies are the zone egresses, likewise.
	EgressProxies *table.Derived[string, []ZoneProxy]
	// EgressServices are the external services of a mesh, as its zone egresses accept connections for them, sorted by
	// key. ExternalUpstreams are the services as egresses dial them; nil where there is none, or where it refers to
	// certificates that never existed.
	EgressServices    *table.Derived[string, []EgressService]
	ExternalUpstreams *table.Derived[DestinationKey, *ExternalUpstream]
	// Reached are the destinations of a proxy group, sorted by name.
	Reached *table.Derived[ProxyGroup, []DestinationKey]
	// HostsOf are the host names of a destination, whose key has no port.
	HostsOf *table.Derived[DestinationKey, []Host]
	// Hosts are the host names that the proxies of a group resolve, sorted; none where the group is not transparent.
	Hosts *table.Derived[ProxyGroup, []Host]
	// Policies are the policies of a kind in a mesh. They have no confs, so an edited conf leaves them equal.
	Policies *table.Derived[PoliciesKey, *policy.List]
	// Selectable is a Dataplane as policies select it; nil where there is none. The proxy of a ZoneEgress has no name,
	// labels and sections. Endpoint statuses leave it equal.
	Selectable *table.Derived[ProxyKey, *policy.Proxy]
	// Selections are the policies of a kind that apply to a proxy, in ascending order.
	Selections *table.Derived[SelectionKey, []policy.Selected]
	// Proxy is one proxy; nil where there is no such Dataplane.
	Proxy *table.Derived[ProxyKey, *Proxy]
	// Draining are the listeners that a proxy serves and its Dataplane no longer has, and, by their Section, such
	// inbounds of its listeners.
	Draining *table.Derived[ProxyKey, []string]

	services []serviceKind // by DestinationKind
	kinds    map[string]kindRows
	// policyRows return the policies of a mesh without their confs, by kind.
	policyRows map[string]func(r *table.Reader, mesh string) []*policy.Policy
}

// Fault is a derived value whose function panics for a resource, because of a bug. The last value stays in use.
type Fault struct {
	Value string // the name of the value
	Mesh  string
	Cause kind.Cause // the resource
	Panic string
}

// Rows is the table of one kind, keyed by [RowKey].
type Rows[S any] struct {
	*table.Input[*resource.Object[S]]
}

// Find returns one resource.
func (t Rows[S]) Find(r *table.Reader, mesh, name string) (*resource.Object[S], bool) {
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

// CauseKey returns the index key of a resource whose configuration gets a NACK.
func CauseKey(mesh string, c kind.Cause) string { return mesh + "/" + c.Kind + "/" + c.Name }

// kindRows puts, removes and finds rows whose kind is known by name only.
type kindRows struct {
	put    func(*table.Tx, resource.Any)
	remove func(*table.Tx, string)
	find   func(*table.Reader, string) (resource.Any, bool)
	from   func(s *table.Snapshot, prefix, after string) iter.Seq[resource.Any]
}

// NewState returns an empty state of a zone.
func NewState(zone string) *State {
	s := &State{DB: table.New(), Zone: zone, kinds: map[string]kindRows{},
		policyRows: map[string]func(*table.Reader, string) []*policy.Policy{}}
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
	s.Permissions, s.PermissionByMesh = addPolicies(s, kind.MeshTrafficPermissions)
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
	// Only the API reads these.
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
	s.RetainedEndpointsByProxy = table.NewIndex(s.RetainedEndpoints.Input, retainedEndpointKeys)
	s.RetainedSNIRoutesByProxy = table.NewIndex(s.RetainedSNIRoutes.Input, retainedSNIRouteKeys)
	s.RetainedSNIRoutesByMesh = byMesh(s.RetainedSNIRoutes)
	s.CertificatesByRoot = table.NewIndex(s.Certificates.Input, rootKeys)
	s.EgressCertificatesByRoot = table.NewIndex(s.EgressCertificates.Input, rootKeys)
	s.EgressCertificatesByName = table.NewIndex(s.EgressCertificates.Input, egressNameKeys)
	s.CertificatesChanging = table.NewIndex(s.Certificates.Input, movingKeys)
	s.IdentitiesByMesh = byMesh(s.Identities)
	s.SigningCAsByMesh = byMesh(s.SigningCAs)
	s.TrustsByMesh = byMesh(s.Trusts)
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

// HasRows returns whether the state has rows of a kind. It has all kinds that the API shows.
func (s *State) HasRows(kind string) bool {
	_, ok := s.kinds[kind]
	return ok
}

// Kinds returns the names of the kinds of the state, sorted.
func (s *State) Kinds() []string { return slices.Sorted(maps.Keys(s.kinds)) }

// Put stores a resource of any kind of the state.
func (s *State) Put(tx *table.Tx, o resource.Any) { s.kinds[o.Key().Kind].put(tx, o) }

// Remove removes a resource of any kind of the state.
func (s *State) Remove(tx *table.Tx, key resource.Key) {
	s.kinds[key.Kind].remove(tx, RowKey(key.Mesh, key.Name))
}

// Find returns a resource of any kind of the state.
func (s *State) Find(r *table.Reader, key resource.Key) (resource.Any, bool) {
	return s.kinds[key.Kind].find(r, RowKey(key.Mesh, key.Name))
}

// From returns the resources of a kind after a [RowKey], in the order of these keys: of one mesh, or of all where the
// mesh is empty. "" is before the first. It records no read, so derived functions must not use it.
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

// ListenerKey returns the index key of the listeners on an address and port.
func ListenerKey(mesh, address string, port uint32) string {
	return mesh + "/" + kind.HostPort(address, port)
}

// causeKeys returns the index keys of the NACKs of connected proxies.
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
	if realm, _, ok := pki.SigningKeyOf(secret.Key()); ok {
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

// HostnameKey returns the index key of a host name, which is unique in a mesh.
func HostnameKey(mesh, hostname string) string { return mesh + "/" + hostname }
