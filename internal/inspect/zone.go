package inspect

import (
	"maps"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// KindLink is the zone sync status of one kind between a zone and global, as the responding side knows it. Positions
// belong to the log of their sender, and compare with each other only.
type KindLink struct {
	Connected bool `json:"connected"` // each kind has a stream of its own
	// Since is the start of a disconnection in the zone, and Problem its reason.
	Since   *kind.Time `json:"since,omitempty"`
	Problem string     `json:"problem,omitempty"`
	// Stored is the position up to which the other side has stored items, and Acked the position up to which its
	// proxies (on global, those of the other zones) have ACKed them. Lagging has the positions of meshes of which they
	// have ACKed less. Current states that it has stored all.
	Stored  uint64            `json:"stored"`
	Acked   uint64            `json:"acked"`
	Lagging map[string]uint64 `json:"lagging,omitempty"`
	Current bool              `json:"current"`
	// Lag is the age of the oldest change that the other side has not stored, or 0.
	Lag kind.Duration `json:"lag"`
	// Received is the position of the other side up to which items are stored here, or 0 where it is not known yet.
	Received uint64 `json:"received"`
	// LastItem is the time of the last item of the kind in either direction.
	LastItem *kind.Time `json:"lastItem,omitempty"`
	Rejected int        `json:"rejected"` // resources that one side rejected
	// ItemsSent and ItemsReceived count since the stream began.
	ItemsSent     uint64 `json:"itemsSent"`
	ItemsReceived uint64 `json:"itemsReceived"`
}

// GlobalLink is the status of a zone's connection to global.
type GlobalLink struct {
	Connected bool      `json:"connected"`
	Since     kind.Time `json:"since"`              // start of the connection, or of the disconnection
	Problem   string    `json:"problem,omitempty"`  // reason of the disconnection
	Instance  string    `json:"instance,omitempty"` // replica of the global control plane
	Version   string    `json:"version,omitempty"`  // of that replica
	// Lag is the age of the oldest change that global has not stored.
	Lag      kind.Duration       `json:"lag"`
	Rejected []kind.RejectedItem `json:"rejected"`
	Kinds    map[string]KindLink `json:"kinds"`
}

// Zone is the status of a zone. Only global knows the fields of its connection.
type Zone struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"`
	// Connected states that the zone's control plane is connected, and Since is the start of that state. Both are
	// absent for a zone that never connected.
	Connected *bool         `json:"connected,omitempty"`
	Since     *kind.Time    `json:"since,omitempty"`
	Instance  string        `json:"instance,omitempty"` // replica of global to which it is connected
	Version   string        `json:"version,omitempty"`  // of its control plane
	Lag       kind.Duration `json:"lag"`
	LastItem  *kind.Time    `json:"lastItem,omitempty"`
	// Unknown is why lag, lastItem and kinds are unknown: the replica to which the zone is connected has not responded.
	Unknown string `json:"unknown,omitempty"`

	Rejected []kind.RejectedItem `json:"rejected"`
	// Store is the fingerprint of the zone's store. RejectedStores are control planes with the zone's name and another
	// store. DoubtedDeletions are deletions that wait for the confirmation of an operator.
	Store            string                 `json:"store,omitempty"`
	RejectedStores   []kind.RejectedStore   `json:"rejectedStores,omitempty"`
	DoubtedDeletions []kind.DoubtedDeletion `json:"doubtedDeletions,omitempty"`

	Dataplanes Counts              `json:"dataplanes"` // a zone knows only its own
	Services   ZoneServices        `json:"services"`
	Ingresses  []ZoneIngress       `json:"ingresses"`
	Kinds      map[string]KindLink `json:"kinds,omitempty"`
}

// ZoneServices are the numbers of a zone's MeshServices, and of those with a ready endpoint.
type ZoneServices struct {
	Total     int `json:"total"`
	Available int `json:"available"`
}

// ZoneIngress is a zone ingress, as other zones dial it for a mesh.
type ZoneIngress struct {
	Mesh    string `json:"mesh"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Healthy bool   `json:"healthy"`
}

// Zones returns the status of all zones, with what is of the meshes of the world. On global these are the zones with a
// Zone, in a zone those of which it has services or ingresses, and itself.
func (w *World) Zones() []Zone {
	zones := map[string]*Zone{}
	if w.State.Tables.Zone != "" {
		named(zones, w.State.Tables.Zone)
	}
	for o := range w.Resources(kind.Zones.Name, "") {
		z := named(zones, o.Envelope().Name)
		z.Enabled = resource.SpecOf(o).(*kind.Zone).Enabled
		w.connectionOf(z)
	}
	for dp, k := range w.proxies("") {
		named(zones, w.State.Tables.ZoneOf(&dp.Meta)).Dataplanes.add(w.status(dp, k))
	}
	for o := range w.Resources(kind.MeshServices.Name, "") {
		services := &named(zones, w.State.Tables.ZoneOf(o.Envelope())).Services
		services.Total++
		if resource.SpecOf(o).(*kind.MeshService).State == "Available" {
			services.Available++
		}
	}
	for o := range w.Resources(kind.MeshZoneAddresses.Name, "") {
		z := named(zones, w.State.Tables.ZoneOf(o.Envelope()))
		for _, a := range resource.SpecOf(o).(*kind.MeshZoneAddress).Ingresses {
			z.Ingresses = append(z.Ingresses, ZoneIngress{o.Envelope().Mesh, a.Name, a.Listener(), a.Healthy})
		}
	}
	all := []Zone{}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		all = append(all, *zones[name])
	}
	return all
}

// named returns the entry of a zone, and creates it for the first caller.
func named(zones map[string]*Zone, name string) *Zone {
	if zones[name] == nil {
		zones[name] = &Zone{Name: name, Rejected: []kind.RejectedItem{}, Ingresses: []ZoneIngress{}}
	}
	return zones[name]
}

func (w *World) connectionOf(z *Zone) {
	insight := w.Zone(z.Name)
	z.Connected = new(bool)
	for _, s := range insight.Subscriptions {
		switch open := s.DisconnectTime == nil; {
		case open:
			*z.Connected, z.Since, z.Version, z.Instance = true, &s.ConnectTime, s.Version.Text(),
				s.ControlPlaneInstanceID
		case !*z.Connected:
			z.Since, z.Version = s.DisconnectTime, s.Version.Text()
		}
	}
	z.Lag, z.LastItem = insight.Lag, insight.LastItem
	z.Rejected = append(z.Rejected, insight.Rejected...)
	z.Store, z.RejectedStores, z.DoubtedDeletions = insight.Store, insight.RejectedStores, insight.DoubtedDeletions
	if w.Links != nil {
		z.Kinds = w.filterLinks(w.Links(z.Name), insight.Rejected)
	}
}

// FilterLink returns the connection to global with what is of the meshes of the world.
func (w *World) FilterLink(link *GlobalLink) *GlobalLink {
	if link == nil || w.Meshes.IsAll() {
		return link
	}
	shown := *link
	shown.Rejected = w.filterRejected(link.Rejected)
	shown.Kinds = w.filterLinks(link.Kinds, shown.Rejected)
	return &shown
}

// LimitInsight leaves out of the insight of a zone what is not of the meshes of the world: rejected items, and
// deletions, which are counted over all meshes.
func (w *World) LimitInsight(insight *kind.ZoneInsight) {
	if !w.Meshes.IsAll() {
		insight.Rejected, insight.DoubtedDeletions = w.filterRejected(insight.Rejected), nil
	}
}

// filterLinks leaves out the positions of meshes that are not those of the world, and counts the rejected items that
// are: those of rejected.
func (w *World) filterLinks(links map[string]KindLink, rejected []kind.RejectedItem) map[string]KindLink {
	if w.Meshes.IsAll() {
		return links
	}
	counts := map[string]int{}
	for _, item := range rejected {
		counts[item.Kind]++
	}
	shown := maps.Clone(links)
	for of, link := range shown {
		link.Lagging = maps.Clone(link.Lagging)
		maps.DeleteFunc(link.Lagging, func(mesh string, _ uint64) bool { return !w.Meshes.Has(mesh) })
		link.Rejected = counts[of]
		shown[of] = link
	}
	return shown
}

// Zone returns a copy of the insight of a zone, empty for a zone that never connected.
func (w *World) Zone(name string) *kind.ZoneInsight {
	insight := &kind.ZoneInsight{}
	if o, ok := w.State.Tables.Find(table.Eval(w.Snapshot), kind.ZoneInsights.Key("", name)); ok {
		*insight = *resource.SpecOf(o).(*kind.ZoneInsight)
	}
	w.LimitInsight(insight)
	insight.Subscriptions = slices.Clone(insight.Subscriptions)
	for i := range insight.Subscriptions {
		s := &insight.Subscriptions[i]
		last, ended := w.Expired(s.ControlPlaneInstanceID)
		s.DisconnectTime = disconnected(last, ended, s.ConnectTime, s.DisconnectTime)
	}
	if w.Links != nil {
		links := w.filterLinks(w.Links(name), insight.Rejected)
		insight.Lag, insight.LastItem = LagOf(links)
		if last := len(insight.Subscriptions) - 1; links != nil && last >= 0 &&
			insight.Subscriptions[last].DisconnectTime == nil {
			insight.Subscriptions[last].Status = zoneStatus(links, insight.LastItem)
		}
	}
	return insight
}

// zoneStatus returns the numbers of a zone's items on its streams.
func zoneStatus(links map[string]KindLink, last *kind.Time) *kind.ZoneStatus {
	status := &kind.ZoneStatus{LastUpdateTime: last, Stat: map[string]kind.ResponseCounts{}}
	for name, link := range links {
		counts := kind.ResponseCounts{Sent: link.ItemsSent, Rejected: uint64(link.Rejected)}
		counts.Acknowledged = counts.Sent - min(counts.Sent, counts.Rejected)
		status.Stat[name] = counts
		status.Total.Sent += counts.Sent
		status.Total.Acknowledged += counts.Acknowledged
		status.Total.Rejected += counts.Rejected
	}
	return status
}

// LagOf returns the longest lag of the kinds, and the time of their last item.
func LagOf(kinds map[string]KindLink) (lag kind.Duration, last *kind.Time) {
	for _, k := range kinds {
		lag = max(lag, k.Lag)
		if k.LastItem != nil && (last == nil || k.LastItem.After(last.Time)) {
			last = k.LastItem
		}
	}
	return lag, last
}

// ZoneConnected reports whether a zone's control plane is connected.
func (w *World) ZoneConnected(name string) bool {
	return slices.ContainsFunc(w.Zone(name).Subscriptions, func(s kind.ZoneSubscription) bool {
		return s.DisconnectTime == nil
	})
}
