package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"weft/internal/match"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// permissionWarnings returns the rules of a MeshTrafficPermission that the selected proxies cannot enforce.
func (w *Writer) permissionWarnings(ctx context.Context, p *resource.Object[kind.MeshTrafficPermission]) []string {
	if !w.hasIdentity(ctx, p.Mesh) {
		return []string{
			fmt.Sprintf("mesh %q has no MeshIdentity and no mtls: its traffic is plaintext and every client "+
				"may call every service until there is one", p.Mesh)}
	}
	warnings := unknownSNIs(p.Spec.Rules)
	target := p.Spec.TargetRef
	hit := selectedParts{inbound: true, ingress: true, egress: true} // the whole mesh may have every kind of proxy
	if target != nil && target.Kind == "Dataplane" {
		hit = w.selectedBy(ctx, p.Mesh, target)
	}
	for i := range p.Spec.Rules {
		rule := &p.Spec.Rules[i]
		at := fmt.Sprintf("spec.rules[%d]", i)
		entries := rule.Default.Entries()
		withSNI := slices.IndexFunc(entries, hasSNI)
		switch {
		case hit.onlyIngresses() && len(entries) > 0:
			warnings = append(warnings, at+": has no effect on a zone ingress, which is all that the target selects: "+
				"it passes connections on unopened, and can't tell who calls; target the proxies of the services")
		case len(rule.Matches) > 0 && !hit.egress && (hit.inbound || hit.ingress):
			warnings = append(warnings, at+".matches: is about external services, which a zone egress serves, and "+
				"the target selects no zone egress; the rule has no effect")
		case withSNI >= 0 && !hit.egress && (hit.inbound || hit.ingress):
			warnings = append(warnings, at+"."+entries[withSNI].Field+".sni: is about an external service, which a "+
				"zone egress serves, and the target selects no zone egress; the entry has no effect")
		case withSNI >= 0 && len(rule.Matches) == 0 && !slices.ContainsFunc(entries, func(e kind.PermissionEntry) bool {
			return !hasSNI(e)
		}):
			warnings = append(warnings,
				at+": has no matches, so that it applies to every external service; a service whose SNI no entry has "+
					"is denied to every caller, unless another rule allows it; to leave the others as they are, list "+
					"the SNIs in matches too")
		}
		if hit.egress && (withSNI >= 0 || len(rule.Matches) > 0) {
			warnings = append(warnings, w.atZoneEgresses(ctx, at, target)...)
		}
	}
	return warnings
}

// atZoneEgresses warns of a rule with an SNI that has no effect at a ZoneEgress. A ZoneEgress is not a Dataplane, so
// only policies that target the whole mesh apply to it.
func (w *Writer) atZoneEgresses(ctx context.Context, at string, target *kind.TargetRef) []string {
	if target == nil || target.Kind == "Mesh" {
		return nil
	}
	rows, _, err := w.rows.List(ctx, kind.ZoneEgresses.Name)
	if err != nil || len(rows) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: its SNIs have no effect at the %s: a ZoneEgress serves every mesh and is no "+
		"Dataplane, so targetRef does not select it; leave targetRef out for a rule about external services", at,
		rows[0].Key)}
}

// ruleWarnings warns of rules about callers that never match.
func (w *Writer) ruleWarnings(ctx context.Context, mesh string, parts kind.Parts) []string {
	if len(parts.Rules) == 0 {
		return nil
	}
	hit := selectedParts{inbound: true, ingress: true, egress: true}
	if target := parts.TargetRef; target != nil && target.Kind == "Dataplane" {
		hit = w.selectedBy(ctx, mesh, target)
	}
	identified := w.hasIdentity(ctx, mesh)
	var warnings []string
	for i, rule := range parts.Rules {
		for j, m := range rule.Matches {
			at := fmt.Sprintf("spec.rules[%d].matches[%d]", i, j)
			switch {
			case m.SpiffeID != nil && !identified:
				warnings = append(warnings, fmt.Sprintf("%s.spiffeID: never matches: mesh %q has no MeshIdentity and "+
					"no mtls, so its traffic is plaintext and callers have no SPIFFE ID", at, mesh))
			case m.SpiffeID != nil && hit.onlyIngresses():
				warnings = append(warnings, at+".spiffeID: never matches on a zone ingress, which is all that the "+
					"target selects: it doesn't decrypt connections, so it knows no caller")
			case m.SNI != nil && !hit.egress && (hit.inbound || hit.ingress):
				warnings = append(warnings, at+".sni: is about an external service, which a zone egress serves, and "+
					"the target selects no zone egress; it never matches")
			case m.SNI != nil:
				warnings = append(warnings, w.atZoneEgresses(ctx, at, parts.TargetRef)...)
			}
		}
	}
	return warnings
}

func hasSNI(e kind.PermissionEntry) bool { return e.SNI != nil }

// unknownSNIs warns of SNIs that no zone egress routes.
func unknownSNIs(rules []kind.PermissionRule) []string {
	var warnings []string
	check := func(at string, m *kind.SNIMatch, what string) {
		if m == nil {
			return
		}
		if parsed, ok := sni.Parse(m.Value); !ok || parsed.Kind != kind.MeshExternalServices.Name {
			warnings = append(warnings,
				fmt.Sprintf("%s.sni.value: %q is not the SNI of an external service, so that the %s has no effect; "+
					"status.zoneEgress.sni of the MeshExternalService shows it", at, m.Value, what))
		}
	}
	for i := range rules {
		for j, m := range rules[i].Matches {
			check(fmt.Sprintf("spec.rules[%d].matches[%d]", i, j), m.SNI, "rule")
		}
		for _, entry := range rules[i].Default.Entries() {
			check(fmt.Sprintf("spec.rules[%d].%s", i, entry.Field), entry.SNI, "entry")
		}
	}
	return warnings
}

// selectedParts are the parts of proxies that a target selects.
type selectedParts struct{ inbound, ingress, egress bool }

func (s selectedParts) onlyIngresses() bool { return s.ingress && !s.inbound && !s.egress }

// selectedBy returns the parts that a target selects now; none where the store fails.
func (w *Writer) selectedBy(ctx context.Context, mesh string, target *kind.TargetRef) selectedParts {
	var all selectedParts
	for _, dp := range w.dataplanesNamed(ctx, mesh, target.Name) {
		n := &dp.Spec.Networking
		selects := func(name string, port uint32) bool {
			return match.Selects(target, &dp.Meta, cmp.Or(name, strconv.Itoa(int(port))))
		}
		all.inbound = all.inbound || slices.ContainsFunc(n.Inbound, func(in kind.Inbound) bool {
			return selects(in.Name, in.Port)
		})
		all.ingress = all.ingress || n.ZoneIngress != nil && selects(n.ZoneIngress.Name, n.ZoneIngress.Port)
		all.egress = all.egress || n.ZoneEgress != nil && selects(n.ZoneEgress.Name, n.ZoneEgress.Port)
	}
	return all
}

// dataplanesNamed returns the Dataplane with a name; every Dataplane of the mesh for an empty name.
func (w *Writer) dataplanesNamed(ctx context.Context, mesh, name string) []*resource.Object[kind.Dataplane] {
	if name == "" {
		all, _ := w.dataplanes(ctx, mesh)
		return all
	}
	stored, err := w.stored(ctx, kind.Dataplanes.Key(mesh, name))
	if err != nil || stored == nil {
		return nil
	}
	return []*resource.Object[kind.Dataplane]{stored.object.(*resource.Object[kind.Dataplane])}
}

// dataplanes returns the stored Dataplanes of a mesh, of every zone.
func (w *Writer) dataplanes(ctx context.Context, mesh string) ([]*resource.Object[kind.Dataplane], error) {
	rows, _, err := w.rows.List(ctx, kind.Dataplanes.Name)
	if err != nil {
		return nil, err
	}
	var dataplanes []*resource.Object[kind.Dataplane]
	for _, row := range rows {
		if row.Key.Mesh != mesh {
			continue
		}
		if o, err := Decode(row); err == nil {
			dataplanes = append(dataplanes, o.(*resource.Object[kind.Dataplane]))
		}
	}
	return dataplanes, nil
}
