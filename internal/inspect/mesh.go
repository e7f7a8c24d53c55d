package inspect

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Mesh is a summary of a mesh.
type Mesh struct {
	Dataplanes Counts           `json:"dataplanes"`
	ByType     DataplanesByType `json:"dataplanesByType"`
	Services   ServiceTotals    `json:"services"`
	Policies   map[string]Total `json:"policies"` // by kind, without kinds that have no policy
	// Resources has the number of resources by kind, policies included, without kinds that have none.
	Resources map[string]Total `json:"resources"`
	MTLS      MTLS             `json:"mTLS"`
	Versions  ProxyVersions    `json:"dpVersions"`
}

// DataplanesByType are the numbers of a mesh's Dataplanes by their type. No Dataplane is a gateway of Kuma.
type DataplanesByType struct {
	Standard         Counts `json:"standard"`
	Gateway          Counts `json:"gateway"`
	GatewayBuiltin   Counts `json:"gatewayBuiltin"`
	GatewayDelegated Counts `json:"gatewayDelegated"`
}

// ProxyVersions counts the proxies by the versions of their programs.
type ProxyVersions struct {
	Envoy map[string]Counts `json:"envoy"`
	Agent map[string]Counts `json:"kumaDp"` // weft-dp
}

// add counts a proxy by the versions of its latest connection.
func (v *ProxyVersions) add(i *kind.DataplaneInsight, s Status) {
	if i == nil || len(i.Subscriptions) == 0 {
		return
	}
	latest := i.Subscriptions[len(i.Subscriptions)-1].Version
	count := func(by map[string]Counts, version string) {
		if version != "" {
			counts := by[version]
			counts.add(s)
			by[version] = counts
		}
	}
	count(v.Envoy, latest.Text())
	if latest != nil && latest.Agent != nil {
		count(v.Agent, latest.Agent.Version)
	}
}

// ServiceTotals are the services of a mesh, and the external services that it knows.
type ServiceTotals struct {
	Total    int `json:"total"`
	Internal int `json:"internal"`
	External int `json:"external"`
}

// MTLS counts the proxies with a certificate.
type MTLS struct {
	// IssuedBackends are the issuers of the certificates: MeshIdentities, and backends of the mesh's mtls.
	IssuedBackends map[string]Counts `json:"issuedBackends"`
	// SupportedBackends are the backends of the mesh's mtls. All of these proxies trust their certificates.
	SupportedBackends map[string]Counts `json:"supportedBackends"`
}

// Mesh returns the summary of one mesh.
func (w *World) Mesh(mesh string) Mesh {
	m := Mesh{Policies: map[string]Total{}, Resources: map[string]Total{},
		MTLS:     MTLS{map[string]Counts{}, map[string]Counts{}},
		Versions: ProxyVersions{map[string]Counts{}, map[string]Counts{}}}
	var certified Counts
	for dp, k := range w.proxies(mesh) {
		status := w.status(dp, k)
		m.Dataplanes.add(status)
		m.Versions.add(k.insight, status)
		if k.insight != nil && k.insight.Certificate != nil {
			issuer := k.insight.Certificate.Issuer
			counts := m.MTLS.IssuedBackends[issuer]
			counts.add(status)
			m.MTLS.IssuedBackends[issuer] = counts
			certified.add(status)
		}
	}
	if o, ok := w.State.Tables.Meshes.Find(table.Eval(w.Snapshot), "", mesh); ok && o.Spec.MTLS != nil {
		for _, b := range o.Spec.MTLS.Backends {
			m.MTLS.SupportedBackends[b.Name] = certified
		}
	}
	m.Services.Internal = w.Count(kind.MeshServices, mesh)
	m.Services.External = w.Count(kind.MeshExternalServices, mesh)
	m.Services.Total = m.Services.Internal + m.Services.External
	m.ByType.Standard = m.Dataplanes
	for _, d := range CountedKinds() {
		if n := w.Count(d, mesh); n > 0 && d.Describe().Scope == resource.Mesh {
			m.Resources[d.Describe().Name] = Total{n}
		}
	}
	for _, d := range kind.Policies() {
		if counted, ok := m.Resources[d.Describe().Name]; ok {
			m.Policies[d.Describe().Name] = counted
		}
	}
	return m
}

// CountedKinds returns the kinds whose resources a summary counts: those that users write, without Secrets, Zones and
// the resources that a summary counts by status.
func CountedKinds() []resource.Descriptor {
	return slices.DeleteFunc(slices.Clone(kind.Written()), func(d resource.Descriptor) bool {
		info := d.Describe()
		return info.AdminOnly || info.Scope != resource.Mesh && info.Name != kind.HostnameGenerators.Name
	})
}

// Count returns the number of resources of a kind, in one mesh or, for an empty name, in all meshes of the world. It
// costs no pass over the resources of a kind of mesh scope.
func (w *World) Count(d resource.Descriptor, mesh string) int {
	n, of := 0, d.Describe()
	switch {
	case w.Meshes.IsAll(), mesh != "" && w.Meshes.Has(mesh):
		return w.State.Tables.Count(w.Snapshot, of.Name, mesh)
	case mesh == "" && of.Scope == resource.Mesh:
		for _, name := range w.Meshes.Names() {
			n += w.State.Tables.Count(w.Snapshot, of.Name, name)
		}
	default:
		for range w.Resources(of.Name, mesh) {
			n++
		}
	}
	return n
}

// Global is a summary of several meshes.
type Global struct {
	Meshes     Total            `json:"meshes"`
	Zones      GlobalZones      `json:"zones"`
	Dataplanes GlobalDataplanes `json:"dataplanes"`
	Services   GlobalServices   `json:"services"`
	Policies   Total            `json:"policies"`
	// Resources has the number of resources by kind, without kinds that have none.
	Resources map[string]Total `json:"resources"`
}

// GlobalZones are the numbers of zones.
type GlobalZones struct {
	ControlPlanes ZoneCounts `json:"controlPlanes"`
	ZoneIngresses ZoneCounts `json:"zoneIngresses"`
	ZoneEgresses  ZoneCounts `json:"zoneEgresses"`
}

// ZoneCounts are the number of zones, or of their ZoneIngresses or ZoneEgresses, and of the connected ones.
type ZoneCounts struct {
	Total  int `json:"total"`
	Online int `json:"online"`
	// Unknown is the number of those whose zone is not connected to this global control plane.
	Unknown int `json:"unknown,omitempty"`
}

func (c *ZoneCounts) add(isOnline bool) {
	c.Total++
	if isOnline {
		c.Online++
	}
}

func (w *World) addZoneProxy(c *ZoneCounts, o resource.Any, key state.ProxyKey) {
	if w.UnknownOf(o.Envelope()) != nil {
		c.Total++
		c.Unknown++
		return
	}
	c.add(w.IsConnected(key))
}

// GlobalDataplanes are the numbers of proxies by type.
type GlobalDataplanes struct {
	Standard         Counts `json:"standard"`
	GatewayBuiltin   Counts `json:"gatewayBuiltin"` // none
	GatewayDelegated Counts `json:"gatewayDelegated"`
}

// GlobalServices are the numbers of services by type.
type GlobalServices struct {
	Internal         Counts `json:"internal"`
	External         Total  `json:"external"`
	GatewayBuiltin   Counts `json:"gatewayBuiltin"` // none
	GatewayDelegated Counts `json:"gatewayDelegated"`
}

// Global returns the summary of the meshes of the world. A service without proxies counts as offline.
func (w *World) Global() Global {
	var g Global
	g.Meshes.Total = w.Count(kind.Meshes, "")
	all := map[*resource.Object[kind.Dataplane]]known{}
	for dp, k := range w.proxies("") {
		all[dp] = k
		g.Dataplanes.Standard.add(w.status(dp, k))
	}
	seen := func(dp *resource.Object[kind.Dataplane]) known { return all[dp] }
	for o := range w.Resources(kind.MeshServices.Name, "") {
		g.Services.Internal.add(w.providers(o.(*resource.Object[kind.MeshService]), seen).summary())
	}
	g.Services.External.Total = w.Count(kind.MeshExternalServices, "")
	g.Resources = map[string]Total{}
	for _, d := range CountedKinds() {
		if n := w.Count(d, ""); n > 0 {
			g.Resources[d.Describe().Name] = Total{n}
		}
	}
	for _, d := range kind.Policies() {
		g.Policies.Total += g.Resources[d.Describe().Name].Total
	}
	for o := range w.Resources(kind.ZoneIngresses.Name, "") {
		w.addZoneProxy(&g.Zones.ZoneIngresses, o, state.ZoneIngressProxy(o.Envelope().Name))
	}
	for o := range w.Resources(kind.ZoneEgresses.Name, "") {
		w.addZoneProxy(&g.Zones.ZoneEgresses, o, state.ZoneEgressProxy(o.Envelope().Name))
	}
	for o := range w.Resources(kind.Zones.Name, "") {
		g.Zones.ControlPlanes.add(w.ZoneConnected(o.Envelope().Name))
	}
	return g
}

// IsConnected reports whether a proxy is connected.
func (w *World) IsConnected(key state.ProxyKey) bool {
	insight, ok := w.State.Tables.Insight(table.Eval(w.Snapshot), key)
	return ok && w.connected(&insight.Spec)
}
