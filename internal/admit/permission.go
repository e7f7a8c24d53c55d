package admit

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

// permissionWarnings say what of a MeshTrafficPermission its proxies cannot follow.
func (w *Writer) permissionWarnings(ctx context.Context, p *resource.Object[kind.MeshTrafficPermission]) []string {
	if !w.identified(ctx, p.Mesh) {
		return []string{fmt.Sprintf("mesh %q has no MeshIdentity and no mtls: its traffic is plain and everybody may call everybody until there is one", p.Mesh)}
	}
	warnings := unknownNames(p.Spec.Rules)
	target := p.Spec.TargetRef
	if target == nil || target.Kind != "Dataplane" {
		return warnings // of the whole mesh there may be anything
	}
	hit := w.hit(ctx, p.Mesh, target)
	for i := range p.Spec.Rules {
		rule := &p.Spec.Rules[i]
		at := fmt.Sprintf("spec.rules[%d]", i)
		switch d := &rule.Default; {
		case hit.onlyIngresses() && len(d.Deny)+len(d.AllowWithShadowDeny)+len(d.Allow) > 0:
			warnings = append(warnings, at+": has no effect on a zone ingress, which is all that the target selects: it passes connections on unopened, and can't tell who calls; target the proxies of the services")
		case len(rule.Matches) > 0 && !hit.egress && (hit.inbound || hit.ingress):
			warnings = append(warnings, at+".matches: is about what a zone egress tells apart by server name, and the target selects none; the rule has no effect")
		}
	}
	return warnings
}

// unknownNames warns of server names by which no zone proxy tells anything apart.
func unknownNames(rules []kind.PermissionRule) []string {
	var warnings []string
	for i := range rules {
		for j, m := range rules[i].Matches {
			if told, ok := sni.Parse(m.SNI.Value); !ok || told.Kind != kind.MeshExternalServices.Name {
				warnings = append(warnings, fmt.Sprintf("spec.rules[%d].matches[%d].sni.value: %q is not the server name of an external service, so that the rule has no effect; status.zoneEgress.sni of the MeshExternalService shows it", i, j, m.SNI.Value))
			}
		}
	}
	return warnings
}

// selected is what of proxies a target selects.
type selected struct{ inbound, ingress, egress bool }

func (s selected) onlyIngresses() bool { return s.ingress && !s.inbound && !s.egress }

// hit answers what a target selects now. Where the store fails, which it just did not, it is nothing.
func (w *Writer) hit(ctx context.Context, mesh string, target *kind.TargetRef) selected {
	var all selected
	for _, dp := range w.named(ctx, mesh, target.Name) {
		n := &dp.Spec.Networking
		selects := func(name string, port uint32) bool {
			return match.Hits(target, &dp.Meta, cmp.Or(name, strconv.Itoa(int(port))))
		}
		all.inbound = all.inbound || slices.ContainsFunc(n.Inbound, func(in kind.Inbound) bool { return selects(in.Name, in.Port) })
		all.ingress = all.ingress || n.ZoneIngress != nil && selects(n.ZoneIngress.Name, n.ZoneIngress.Port)
		all.egress = all.egress || n.ZoneEgress != nil && selects(n.ZoneEgress.Name, n.ZoneEgress.Port)
	}
	return all
}

// named are the Dataplane of a name, and without a name all.
func (w *Writer) named(ctx context.Context, mesh, name string) []*resource.Object[kind.Dataplane] {
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

// dataplanes are those of a mesh, of every zone that is stored here.
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
