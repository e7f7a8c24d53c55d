package reconcile

import (
	"reflect"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ComputedStatus is the part of a status that is computed when it is read, as the API server of Kubernetes stores it:
// kubectl does not read it from this control plane. It has no counts and no texts, which change with every proxy. (ADR
// 126)
type ComputedStatus struct {
	Of resource.Key
	// Conditions have a type, a status and a reason, and no message.
	Conditions []kind.Condition
	// ZoneEgress is the zone egress that clients of a MeshExternalService dial, without its endpoints.
	ZoneEgress *kind.ServiceEgress
}

// SetComputed replaces the computed parts of all statuses. The writes of the statuses follow where a part is another
// one than before. Without changes, nothing is committed.
func (rc *Reconciler) SetComputed(all []*ComputedStatus) {
	computed := rc.plan.computed
	wanted := map[resource.Key]*ComputedStatus{}
	for _, c := range all {
		wanted[c.Of] = c
	}
	var gone []resource.Key
	for c := range computed.All(rc.plan.State.Tables.DB.Snapshot()) {
		switch known := wanted[c.Of]; {
		case known == nil:
			gone = append(gone, c.Of)
		case reflect.DeepEqual(known, c):
			delete(wanted, c.Of)
		}
	}
	if len(wanted)+len(gone) == 0 {
		return
	}
	rc.runner.commit(func(tx *table.Tx) {
		for _, key := range gone {
			computed.Delete(tx, key.String())
		}
		for _, c := range wanted {
			computed.Put(tx, c)
		}
	})
}

// withComputed returns the conditions of a status: its own ones, and the computed ones of other types. Until they are
// computed, those that are stored stay, so another leader removes nothing.
func (p *Plan) withComputed(r *table.Reader, of resource.Key, own, stored []kind.Condition) []kind.Condition {
	var computed []kind.Condition
	if c, ok := p.computed.Get(r, of.String()); ok {
		computed = c.Conditions
	} else if p.kubernetes != nil {
		computed = slices.DeleteFunc(slices.Clone(stored), func(c kind.Condition) bool { return c.Message != "" })
	}
	for _, c := range computed {
		if !slices.ContainsFunc(own, func(had kind.Condition) bool { return had.Type == c.Type }) {
			own = append(own, c)
		}
	}
	return own
}

// zoneEgress returns the computed zone egress of a MeshExternalService; the stored one until it is computed.
func (p *Plan) zoneEgress(r *table.Reader, of resource.Key, stored *kind.ServiceEgress) *kind.ServiceEgress {
	if c, ok := p.computed.Get(r, of.String()); ok || p.kubernetes == nil {
		if !ok {
			return nil
		}
		return c.ZoneEgress
	}
	return stored
}
