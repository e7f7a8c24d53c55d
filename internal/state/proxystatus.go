package state

import (
	"cmp"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ProxyStatusTables are the listener statuses and the insights of proxies of every type.
type ProxyStatusTables struct {
	ListenerStatuses            Rows[kind.DataplaneListenerStatus]
	ZoneIngressListenerStatuses Rows[kind.DataplaneListenerStatus]
	ZoneEgressListenerStatuses  Rows[kind.DataplaneListenerStatus]
	Insights                    Rows[kind.DataplaneInsight]
	ZoneIngressInsights         Rows[kind.DataplaneInsight]
	ZoneEgressInsights          Rows[kind.DataplaneInsight]
	// ListenerStatusesChanging finds the proxies that accept mutual TLS and plaintext, by their [MeshKey].
	ListenerStatusesChanging table.Index[*resource.Object[kind.DataplaneListenerStatus]]
	// InsightsByCause finds the insights of connected proxies that NACK the configuration of a resource, by its
	// [CauseKey].
	InsightsByCause table.Index[*resource.Object[kind.DataplaneInsight]]
}

func (t *Tables) addProxyStatus() {
	t.ListenerStatuses = addRows(t, kind.DataplaneListenerStatuses)
	t.ZoneIngressListenerStatuses = addRows(t, kind.ZoneIngressListenerStatuses)
	t.ZoneEgressListenerStatuses = addRows(t, kind.ZoneEgressListenerStatuses)
	t.Insights = addRows(t, kind.DataplaneInsights)
	t.ZoneIngressInsights = addRows(t, kind.ZoneIngressInsights)
	t.ZoneEgressInsights = addRows(t, kind.ZoneEgressInsights)
	t.ListenerStatusesChanging = table.NewIndex(t.ListenerStatuses, changingKeys)
	t.InsightsByCause = table.NewIndex(t.Insights, causeKeys)
}

// CauseKey returns the index key of a resource whose configuration gets a NACK of a proxy of a mesh.
func CauseKey(mesh string, c kind.Cause) string {
	return cmp.Or(c.Mesh, mesh) + "/" + c.Kind + "/" + c.Name
}

// NACKed is the insight of a proxy that NACKs the configuration of a resource, with the cause as the insight has it.
type NACKed struct {
	Insight *resource.Object[kind.DataplaneInsight]
	Cause   kind.Cause
}

// NACKsOf returns the connected proxies that NACK the configuration of a resource, on global those of every zone. A
// zone knows a resource of global by another name.
func (t *Tables) NACKsOf(r *table.Reader, mesh string, c kind.Cause) []NACKed {
	causes, zone := t.causesInZones(r, mesh, c)
	var nacked []NACKed
	for _, c := range causes {
		for _, insight := range t.InsightsByCause.List(r, CauseKey(mesh, c)) {
			if zone == "" || t.ZoneOf(&insight.Meta) == zone {
				nacked = append(nacked, NACKed{insight, c})
			}
		}
	}
	return nacked
}

// causesInZones returns a resource as the insights of proxies name it, and on global the zone that it belongs to: empty
// where every zone may have it. A zone where another resource has the one name has the other.
func (t *Tables) causesInZones(r *table.Reader, mesh string, c kind.Cause) (named []kind.Cause, zone string) {
	o, ok := t.Find(r, resource.Key{Kind: c.Kind, Mesh: mesh, Name: c.Name})
	if !ok || t.Zone != "" {
		return []kind.Cause{c}, ""
	}
	meta, info := o.Envelope(), kind.ByName(c.Kind).Describe()
	name, zone := kind.OwnerName(info, meta), t.OwnerOf(meta).Zone
	names := []string{name}
	if zone == "" && kind.HasSyncedName(info) {
		names = []string{kind.SyncedName(info, mesh, name, kind.Owner{}),
			kind.LongerSyncedName(mesh, name, kind.Owner{})}
	}
	for _, c.Name = range names {
		named = append(named, c)
	}
	return named, zone
}

func changingKeys(row *resource.Object[kind.DataplaneListenerStatus]) []string {
	if row.Spec.IsChanging() {
		return []string{MeshKey(row.Mesh)}
	}
	return nil
}

// causeKeys returns the index keys of the NACKs of connected proxies.
func causeKeys(o *resource.Object[kind.DataplaneInsight]) []string {
	var keys []string
	for _, refusal := range o.Spec.NACKs {
		for _, cause := range refusal.Causes {
			if key := CauseKey(o.Mesh, cause); o.Spec.IsConnected() && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// ListenerStatus returns the listener status of a proxy.
func (t *Tables) ListenerStatus(r *table.Reader, key ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool) {
	switch key.Type {
	case kind.IngressProxy:
		return t.ZoneIngressListenerStatuses.Find(r, "", key.Name)
	case kind.EgressProxy:
		return t.ZoneEgressListenerStatuses.Find(r, "", key.Name)
	}
	return t.ListenerStatuses.Find(r, key.Mesh, key.Name)
}

// Insight returns the connection status of a proxy.
func (t *Tables) Insight(r *table.Reader, key ProxyKey) (*resource.Object[kind.DataplaneInsight], bool) {
	switch key.Type {
	case kind.IngressProxy:
		return t.ZoneIngressInsights.Find(r, "", key.Name)
	case kind.EgressProxy:
		return t.ZoneEgressInsights.Find(r, "", key.Name)
	}
	return t.Insights.Find(r, key.Mesh, key.Name)
}
