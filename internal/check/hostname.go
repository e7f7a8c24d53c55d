package check

import (
	"fmt"
	"strings"

	"weft/kind"
	"weft/resource"
)

// hostNames finds host names whose last resolution failed, or returned addresses that must not be dialed.
func (l *checker) hostNames() {
	for row := range l.State.Tables.ResolvedNames.All(l.Snapshot) {
		if row.Spec.Problem == "" {
			continue
		}
		severity, meanwhile := Error, "no address of it is known"
		if left := addresses(row); len(left) > 0 {
			severity, meanwhile = Warning, "used meanwhile: "+someOf(left)
		} else if len(row.Spec.Former) > 0 {
			severity, meanwhile = Warning, "the former ingresses are dialed meanwhile"
		}
		problem := fmt.Sprintf("%s is not resolved for %s: %s; %s", row.Name, ago(l.Now.Sub(row.Spec.Since.Time)),
			row.Spec.Problem, meanwhile)
		if strings.HasPrefix(row.Spec.Problem, "excluded: ") {
			problem = fmt.Sprintf("%s resolves to addresses that are not dialed: %s; %s", row.Name, row.Spec.Problem,
				meanwhile)
		}
		for _, dp := range l.State.Tables.DataplanesByHostName.List(l.r, row.Name) {
			l.add(hostNameNotResolved, severity, objectOf(dp.Key()), "networking.address: %s", problem)
		}
		for _, z := range l.State.Tables.ZoneAddressesByHostName.List(l.r, row.Name) {
			zone := kind.Zones.Key("", l.State.Tables.ZoneOf(&z.Meta))
			l.addIn(z.Mesh, hostNameNotResolved, severity, objectOf(zone),
				"advertisedAddress of its zone ingresses for the mesh %s: %s", z.Mesh, problem)
		}
	}
}

// addresses returns the used addresses of a host name.
func addresses(row *resource.Object[kind.ResolvedName]) []string {
	var used []string
	for _, a := range row.Spec.Addresses {
		used = append(used, a.Address)
	}
	return used
}
