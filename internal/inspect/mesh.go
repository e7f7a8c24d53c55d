package inspect

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Mesh is a summary of a mesh.
type Mesh struct {
	Dataplanes Counts           `json:"dataplanes"`
	Services   ServiceTotals    `json:"services"`
	Policies   map[string]Total `json:"policies"` // by kind, without kinds that have no policy
	MTLS       MTLS             `json:"mTLS"`
	Versions   ProxyVersions    `json:"dpVersions"`
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
	m := Mesh{Policies: map[string]Total{}, MTLS: MTLS{map[string]Counts{}, map[string]Counts{}},
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
	m.Services.Internal = w.count(kind.MeshServices, mesh)
	m.Services.External = w.count(kind.MeshExternalServices, mesh)
	m.Services.Total = m.Services.Internal + m.Services.External
	for _, d := range kind.Policies() {
		if n := w.count(d, mesh); n > 0 {
			m.Policies[d.Describe().Name] = Total{n}
		}
	}
	return m
}

// count returns the number of resources of a kind, in one mesh or, for an empty name, in all.
func (w *World) count(d resource.Descriptor, mesh string) int {
	n := 0
	for range w.State.Tables.From(w.Snapshot, d.Describe().Name, mesh, "") {
		n++
	}
	return n
}

// Global is a summary of all meshes.
type Global struct {
	Meshes     Total            `json:"meshes"`
	Zones      GlobalZones      `json:"zones"`
	Dataplanes GlobalDataplanes `json:"dataplanes"`
	Services   GlobalServices   `json:"services"`
	Policies   Total            `json:"policies"`
}

// GlobalZones are the numbers of zones.
type GlobalZones struct {
	ControlPlanes ZoneCounts `json:"controlPlanes"`
}

// ZoneCounts are the number of zones, and of the connected ones.
type ZoneCounts struct {
	Total  int `json:"total"`
	Online int `json:"online"`
}

// GlobalDataplanes are the numbers of proxies by type.
type GlobalDataplanes struct {
	Standard Counts `json:"standard"`
}

// GlobalServices are the numbers of services by type.
type GlobalServices struct {
	Internal Counts `json:"internal"`
	External Total  `json:"external"`
}

// Global returns the summary of all meshes. A service without proxies counts as offline.
func (w *World) Global() Global {
	var g Global
	g.Meshes.Total = w.count(kind.Meshes, "")
	all := map[*resource.Object[kind.Dataplane]]known{}
	for dp, k := range w.proxies("") {
		all[dp] = k
		g.Dataplanes.Standard.add(w.status(dp, k))
	}
	seen := func(dp *resource.Object[kind.Dataplane]) known { return all[dp] }
	for service := range w.State.Tables.Services.From(w.Snapshot, "", "") {
		g.Services.Internal.add(w.providers(service, seen).status())
	}
	g.Services.External.Total = w.count(kind.MeshExternalServices, "")
	for _, d := range kind.Policies() {
		g.Policies.Total += w.count(d, "")
	}
	for o := range w.State.Tables.From(w.Snapshot, kind.Zones.Name, "", "") {
		g.Zones.ControlPlanes.Total++
		if w.ZoneConnected(o.Envelope().Name) {
			g.Zones.ControlPlanes.Online++
		}
	}
	return g
}
