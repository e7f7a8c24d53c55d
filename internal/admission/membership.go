package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// checkMembership rejects a Dataplane that its mesh does not admit: Forbidden. The rule is that of the stored Mesh,
// which in a joined zone is the last one received from global. A missing mesh is no error here, since the Dataplane
// can't be stored without it. (Mesh Membership.)
func (w *Writer) checkMembership(ctx context.Context, o resource.Any) error {
	dp, ok := o.(*resource.Object[kind.Dataplane])
	if !ok {
		return nil
	}
	mesh, err := w.mesh(ctx, dp.Mesh)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if reason := mesh.Spec.DataplaneProxyMembership.NotAdmittedReason(dp, w.zone, exemptNow(mesh)); reason != "" {
		return resource.Errorf(resource.Forbidden, "%s", reason)
	}
	return nil
}

// exemptNow returns what a mesh exempts from vouchers now.
func exemptNow(mesh *resource.Object[kind.Mesh]) kind.Exemption {
	return kind.ExemptionOf(mesh, func(t time.Time) bool { return !t.After(time.Now()) })
}

func (w *Writer) mesh(ctx context.Context, name string) (*resource.Object[kind.Mesh], error) {
	row, err := w.rows.Get(ctx, kind.Meshes.Key("", name))
	if err != nil {
		return nil, err
	}
	o, err := Decode(row)
	if err != nil {
		return nil, err
	}
	return o.(*resource.Object[kind.Mesh]), nil
}

// maxNamed is how many Dataplanes a warning names, and how many reasons have a warning of their own.
const maxNamed = 10

// evictionWarnings warns of the Dataplanes, of every zone, that a Mesh admitted before and does not admit now, with the
// rules that exclude them: one warning for each reason, the reason of most Dataplanes first.
func (w *Writer) evictionWarnings(ctx context.Context, before, after *resource.Object[kind.Mesh]) []string {
	var had *kind.Membership
	var hadExempt kind.Exemption
	if before != nil {
		had, hadExempt = before.Spec.DataplaneProxyMembership, exemptNow(before)
	}
	has := after.Spec.DataplaneProxyMembership
	exempt := exemptNow(after)
	if has == nil || reflect.DeepEqual(had, has) && hadExempt == exempt {
		return nil
	}
	dataplanes, err := w.dataplanes(ctx, after.Name)
	if err != nil {
		return []string{
			fmt.Sprintf(
				"the Dataplanes that dataplaneProxyMembership evicts could not be read: %s; `weft check` lists them",
				store.Why(err))}
	}
	evicted := map[string][]string{} // names by reason
	for _, dp := range dataplanes {
		zone := w.owner(&dp.Meta).Zone
		if had.ExcludedBy(dp, zone, hadExempt) != "" {
			continue
		}
		if by := has.ExcludedBy(dp, zone, exempt); by != "" {
			evicted[by] = append(evicted[by], w.displayNameWithZone(dp))
		}
	}
	return textOfEvictions(evicted)
}

// displayNameWithZone returns the name that a Dataplane has in its zone, with the zone where that is another one.
func (w *Writer) displayNameWithZone(dp *resource.Object[kind.Dataplane]) string {
	name := kind.OwnerName(&kind.Dataplanes.Info, &dp.Meta)
	if zone := w.owner(&dp.Meta).Zone; zone != w.zone {
		name += " of zone " + zone
	}
	return name
}

func textOfEvictions(evicted map[string][]string) []string {
	reasons := slices.SortedFunc(maps.Keys(evicted), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(evicted[b]), len(evicted[a])), cmp.Compare(a, b))
	})
	var warnings []string
	for _, reason := range reasons[:min(len(reasons), maxNamed)] {
		names := evicted[reason]
		slices.Sort(names)
		text := strings.Join(names[:min(len(names), maxNamed)], ", ")
		if more := len(names) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		warnings = append(warnings, fmt.Sprintf("dataplaneProxyMembership evicts %s: %s: %s", count(len(names)), text,
			reason))
	}
	rest := 0
	for _, reason := range reasons[min(len(reasons), maxNamed):] {
		rest += len(evicted[reason])
	}
	if rest > 0 {
		warnings = append(warnings, fmt.Sprintf("dataplaneProxyMembership evicts %s for %d other reasons", count(rest),
			len(reasons)-maxNamed))
	}
	return warnings
}

func count(dataplanes int) string {
	if dataplanes == 1 {
		return "1 Dataplane"
	}
	return fmt.Sprintf("%d Dataplanes", dataplanes)
}

// memberWarnings warns of membership rules that may not do what the user intends.
func memberWarnings(m *kind.Membership) []string {
	if m == nil {
		return nil
	}
	var warnings []string
	if m.Allowed != nil && len(m.Allowed) == 0 {
		warnings = append(warnings, "dataplaneProxyMembership.allowed: is empty, which admits every proxy; to "+
			"admit none, block {kuma.io/zone: \"*\"}")
	}
	return append(append(warnings, byLabels("allowed", m.Allowed)...), byLabels("blocked", m.Blocked)...)
}

// byLabels warns of rules that rely on Kubernetes labels, which the owner of a Pod may set.
func byLabels(list string, rules []kind.MembershipRule) []string {
	var warnings []string
	for i := range rules {
		k := rules[i].Kubernetes
		if k == nil || (k.Pod == nil || len(k.Pod.Labels) == 0) &&
			(k.Namespace == nil || len(k.Namespace.Labels) == 0) {
			continue
		}
		warnings = append(warnings,
			fmt.Sprintf("dataplaneProxyMembership.%s[%d].kubernetes: rests on labels, which are hard to restrict; a "+
				"namespace by its name and a zone are not the Pod's to choose", list, i))
	}
	return warnings
}
