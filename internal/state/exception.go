package state

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ExceptionTables find the insights of proxies with exceptions. Insights without one are in no index, so that a
// connection or a NACK of another proxy wakes no reader.
type ExceptionTables struct {
	excepted map[kind.ProxyType]table.Index[*resource.Object[kind.DataplaneInsight]] // by [RowKey]
	// byPolicy finds the insights with an exception by the [CauseKey] of its policy.
	byPolicy []table.Index[*resource.Object[kind.DataplaneInsight]]
}

func (t *Tables) addExceptions() {
	t.excepted = map[kind.ProxyType]table.Index[*resource.Object[kind.DataplaneInsight]]{}
	for proxyType, insights := range map[kind.ProxyType]Rows[kind.DataplaneInsight]{kind.DataplaneProxy: t.Insights,
		kind.IngressProxy: t.ZoneIngressInsights, kind.EgressProxy: t.ZoneEgressInsights} {
		t.excepted[proxyType] = table.NewIndex(insights, func(o *resource.Object[kind.DataplaneInsight]) []string {
			if len(o.Spec.Exceptions) == 0 {
				return nil
			}
			return []string{RowKey(o.Mesh, o.Name)}
		})
		t.byPolicy = append(t.byPolicy, table.NewIndex(insights, exceptionKeys))
	}
}

func exceptionKeys(o *resource.Object[kind.DataplaneInsight]) []string {
	var keys []string
	for i := range o.Spec.Exceptions {
		if key := CauseKey(o.Mesh, o.Spec.Exceptions[i].Policy); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// PresentExceptions returns those of the exceptions of a proxy that are from the present versions of policies.
func (t *Tables) PresentExceptions(r *table.Reader, key ProxyKey, exceptions []kind.Exception) []kind.Exception {
	var present []kind.Exception
	for _, e := range exceptions {
		if !t.HasRows(e.Policy.Kind) {
			continue // a kind of another release
		}
		if o, ok := t.Find(r, e.Policy.Key(key.Mesh)); ok && o.Envelope().Version == e.PolicyVersion {
			present = append(present, e)
		}
	}
	return present
}

// LeftOut returns the policies that a proxy does not get, nil where it gets all of them. A policy that restricts
// traffic is never among them.
func (t *Tables) LeftOut(r *table.Reader, key ProxyKey) []resource.Key {
	var keys []resource.Key
	for _, insight := range t.excepted[key.Type].List(r, RowKey(key.Mesh, key.Name)) {
		for _, e := range t.PresentExceptions(r, key, insight.Spec.Exceptions) {
			if e.Excludes() && kind.MayBeLeftOut(e.Policy.Kind) {
				keys = append(keys, e.Policy.Key(key.Mesh))
			}
		}
	}
	return keys
}

// Excepting is the insight of a proxy with an exception from a policy.
type Excepting struct {
	Insight   *resource.Object[kind.DataplaneInsight]
	Exception kind.Exception
}

// ExceptionsFrom returns the exceptions from the present version of a policy, on global those of every zone.
func (t *Tables) ExceptionsFrom(r *table.Reader, key resource.Key) []Excepting {
	causes, zone := t.causesInZones(r, key.Mesh, kind.Cause{Kind: key.Kind, Name: key.Name})
	o, ok := t.Find(r, key)
	if !ok {
		return nil
	}
	var all []Excepting
	for _, c := range causes {
		for _, index := range t.byPolicy {
			for _, insight := range index.List(r, CauseKey(key.Mesh, c)) {
				for _, e := range insight.Spec.Exceptions {
					present := t.Zone == "" || e.PolicyVersion == o.Envelope().Version // global has other versions
					inZone := zone == "" || t.ZoneOf(&insight.Meta) == zone
					if e.Policy.Key(key.Mesh) == c.Key(key.Mesh) && present && inZone {
						all = append(all, Excepting{insight, e})
					}
				}
			}
		}
	}
	return all
}

// ExceptedFrom returns the proxies whose insights have an exception from a policy of this zone, of whatever version.
func (t *Tables) ExceptedFrom(r *table.Reader, key resource.Key) []ProxyKey {
	var keys []ProxyKey
	for _, index := range t.byPolicy {
		for _, insight := range index.List(r, CauseKey(key.Mesh, kind.Cause{Kind: key.Kind, Name: key.Name})) {
			if proxy, ok := ProxyOf(insight.Key()); ok {
				keys = append(keys, proxy)
			}
		}
	}
	return keys
}
