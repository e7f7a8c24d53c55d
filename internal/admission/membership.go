package admission

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

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
	if reason := mesh.Spec.DataplaneProxyMembership.NotAdmittedReason(dp, w.zone); reason != "" {
		return resource.Errorf(resource.Forbidden, "%s", reason)
	}
	return nil
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

// maxNamed is how many Dataplanes a warning names.
const maxNamed = 10

// evictionWarnings warns of the Dataplanes, of every zone, that a Mesh admitted before and does not admit now. Where
// the store fails, it returns nothing.
func (w *Writer) evictionWarnings(ctx context.Context, before, after *resource.Object[kind.Mesh]) []string {
	var had *kind.Membership
	if before != nil {
		had = before.Spec.DataplaneProxyMembership
	}
	has := after.Spec.DataplaneProxyMembership
	if has == nil || reflect.DeepEqual(had, has) {
		return nil
	}
	dataplanes, err := w.dataplanes(ctx, after.Name)
	if err != nil {
		return []string{
			fmt.Sprintf(
				"the Dataplanes that dataplaneProxyMembership evicts could not be read: %s; `weft check` lists them",
				store.Why(err))}
	}
	var names []string
	for _, dp := range dataplanes {
		zone := w.owner(&dp.Meta).Zone
		if had.NotAdmittedReason(dp, zone) == "" && has.NotAdmittedReason(dp, zone) != "" {
			names = append(names, w.displayNameWithZone(dp))
		}
	}
	return evictionWarning(names)
}

// displayNameWithZone returns the name that a Dataplane has in its zone, with the zone where that is another one.
func (w *Writer) displayNameWithZone(dp *resource.Object[kind.Dataplane]) string {
	name := kind.OwnerName(&kind.Dataplanes.Info, &dp.Meta)
	if zone := w.owner(&dp.Meta).Zone; zone != w.zone {
		name += " of zone " + zone
	}
	return name
}

func evictionWarning(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	count := fmt.Sprintf("%d Dataplanes", len(names))
	if len(names) == 1 {
		count = "1 Dataplane"
	}
	return []string{fmt.Sprintf("dataplaneProxyMembership evicts %s: %s", count, text)}
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
