package check

import (
	"strings"

	"weft/kind"
	"weft/resource"
)

// hostName finds a host name whose last resolution failed, or returned addresses that must not be dialed.
func (l *checker) hostName(row *resource.Object[kind.ResolvedName]) {
	if row.Spec.Problem == "" {
		return
	}
	severity, meanwhile := Error, "no address of it is known"
	if left := addresses(row); len(left) > 0 {
		severity, meanwhile = Warning, "used meanwhile: "+someOf(left)
	} else if len(row.Spec.Former) > 0 {
		severity, meanwhile = Warning, "the former ingresses are dialed meanwhile"
	}
	problem, args := "%s is not resolved for %s: %s; %s",
		[]any{row.Name, age(row.Spec.Since.Time), row.Spec.Problem, meanwhile}
	if strings.HasPrefix(row.Spec.Problem, "excluded: ") {
		problem, args = "%s resolves to addresses that are not dialed: %s; %s",
			[]any{row.Name, row.Spec.Problem, meanwhile}
	}
	for _, dp := range l.Tables.DataplanesByHostName.List(l.r, row.Name) {
		l.add(hostNameNotResolved, severity, objectOf(dp.Key()), "networking.address: "+problem,
			args...).cause = row.Name
	}
	for _, z := range l.Tables.ZoneAddressesByHostName.List(l.r, row.Name) {
		zone := kind.Zones.Key("", l.Tables.ZoneOf(&z.Meta))
		l.add(hostNameNotResolved, severity, objectOf(zone), "advertisedAddress of its zone ingresses for the "+
			"mesh %s: "+problem, append([]any{z.Mesh}, args...)...).in(z.Mesh).cause = row.Name
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
