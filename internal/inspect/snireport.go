package inspect

import (
	"cmp"
	"slices"

	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// SNIReport is the progress of an SNI migration of all services.
type SNIReport struct {
	Format string `json:"format"` // the target format
	Done   bool   `json:"done"`   // all SNIs have only the target format
	// Owners are the owners of services with ports: global first, then the zones by name.
	Owners []SNIProgress `json:"owners"`
}

// SNIProgress counts the ports of an owner's services by the step of the migration.
type SNIProgress struct {
	Owner string `json:"owner"` // "global", or a zone
	Ports int    `json:"ports"`
	// Before is the number of ports with SNIs of other formats only. Appended have the new one after them, First before
	// them, and Done have it alone.
	Before   int `json:"before"`
	Appended int `json:"appended"`
	First    int `json:"first"`
	Done     int `json:"done"`
	// WaitsFor are the zones and proxies that delay the next step, as texts for operators.
	WaitsFor []string `json:"waitsFor"`
}

// SNIMigration returns the progress of the SNI migration in a snapshot.
func (rs *Reports) SNIMigration() *SNIReport {
	report := &SNIReport{Owners: []SNIProgress{}}
	format := rs.State.Tables.SNIFormat(rs.r)
	report.Format = format.String()
	owners := map[string]*SNIProgress{}
	count := func(service resource.Any) {
		owner := ownerName(service.Envelope())
		if owners[owner] == nil {
			owners[owner] = &SNIProgress{Owner: owner, WaitsFor: []string{}}
		}
		for _, port := range kind.PortsOf(service) {
			owners[owner].count(port.SNIs, format.Name(sni.PortOf(service, port.Port)))
		}
	}
	for service := range rs.State.Tables.Services.All(rs.Snapshot) {
		count(service)
	}
	for service := range rs.State.Tables.MultiZoneServices.All(rs.Snapshot) {
		count(service)
	}
	for row := range rs.State.Tables.SNIWaits.All(rs.Snapshot) {
		if owner := owners[ownerName(&row.Meta)]; owner != nil {
			owner.waitFor(row.Spec.For)
		}
	}
	report.finish(owners)
	return report
}

// ownerName returns "global", or the zone.
func ownerName(meta *resource.Meta) string { return cmp.Or(kind.OwnerOf(meta).Zone, kind.OriginGlobal) }

func (p *SNIProgress) count(names []kind.SNI, wanted string) {
	p.Ports++
	switch at := slices.IndexFunc(names, func(name kind.SNI) bool { return name.Value == wanted }); {
	case at < 0:
		p.Before++
	case at > 0:
		p.Appended++
	case len(names) > 1:
		p.First++
	default:
		p.Done++
	}
}

// waitFor adds the texts of one mesh to those of the other meshes.
func (p *SNIProgress) waitFor(waits []string) {
	p.WaitsFor = slices.Concat(p.WaitsFor, waits)
	slices.Sort(p.WaitsFor)
	p.WaitsFor = slices.Compact(p.WaitsFor)
}

func (report *SNIReport) finish(owners map[string]*SNIProgress) {
	report.Done = true
	for _, owner := range owners {
		report.Owners = append(report.Owners, *owner)
		report.Done = report.Done && owner.Done == owner.Ports
	}
	slices.SortFunc(report.Owners, func(a, b SNIProgress) int { return cmp.Compare(a.sortKey(), b.sortKey()) })
}

// sortKey returns a sort key with global before every zone.
func (p *SNIProgress) sortKey() string {
	if p.Owner == kind.OriginGlobal {
		return ""
	}
	return p.Owner
}
