package insight

import (
	"maps"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// KindLink is how the resources of one kind stand between a zone and the global control plane, as the side that
// responds knows it. Positions are those in the log of the sender, and compare with each other only.
type KindLink struct {
	Connected bool `json:"connected"` // each kind has a stream of its own
	// Stored is up to where the other side has stored what it is sent, and Acked up to where its proxies, of
	// global the other zones, run with it. Current says that it has everything.
	Stored  uint64 `json:"stored"`
	Acked   uint64 `json:"acked"`
	Current bool   `json:"current"`
	// Lag is the age of the oldest change that it has not stored; 0 where it has all.
	Lag kind.Duration `json:"lag"`
	// Received is up to where what the other side sends is stored here; 0 where that is not known yet.
	Received uint64 `json:"received"`
	// LastItem is when a resource of the kind last went one way or the other.
	LastItem *kind.Time `json:"lastItem,omitempty"`
	Rejected int        `json:"rejected"` // resources that one side did not take
	// ItemsSent and ItemsReceived are counted since the stream was opened.
	ItemsSent     uint64 `json:"itemsSent"`
	ItemsReceived uint64 `json:"itemsReceived"`
}

// GlobalLink is how a zone stands with the global control plane that it joined.
type GlobalLink struct {
	Connected bool      `json:"connected"`
	Since     kind.Time `json:"since"`              // of being connected, or of not being so
	Problem   string    `json:"problem,omitempty"`  // why it is not connected
	Instance  string    `json:"instance,omitempty"` // of the global control plane
	Version   string    `json:"version,omitempty"`  // of the same
	// Lag is the age of the oldest change that global has not taken.
	Lag      kind.Duration       `json:"lag"`
	Rejected []kind.RejectedItem `json:"rejected"`
	Kinds    map[string]KindLink `json:"kinds"`
}

// Zone is one zone as a control plane knows it. What comes from its connection is known to global alone.
type Zone struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"`
	// Connected says whether its control plane is, and Since when that began; absent: it never was.
	Connected *bool         `json:"connected,omitempty"`
	Since     *kind.Time    `json:"since,omitempty"`
	Instance  string        `json:"instance,omitempty"` // of global, to which it is connected
	Version   string        `json:"version,omitempty"`  // of its control plane
	Lag       kind.Duration `json:"lag"`
	LastItem  *kind.Time    `json:"lastItem,omitempty"`

	Rejected []kind.RejectedItem `json:"rejected"`
	// Store is the fingerprint of its store, RejectedStores are control planes that came under its name with others,
	// and DoubtedDeletions what waits until an operator confirms that it is to be deleted.
	Store            string                 `json:"store,omitempty"`
	RejectedStores   []kind.RejectedStore   `json:"rejectedStores,omitempty"`
	DoubtedDeletions []kind.DoubtedDeletion `json:"doubtedDeletions,omitempty"`

	Dataplanes Counts              `json:"dataplanes"` // a zone knows its own only
	Services   ZoneServices        `json:"services"`
	Ingresses  []ZoneIngress       `json:"ingresses"`
	Kinds      map[string]KindLink `json:"kinds,omitempty"`
}

// ZoneServices are the MeshServices of a zone, and those for which it says that somebody serves.
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

// Zones looks at all zones: those that a global control plane has a Zone of, those of which a zone knows
// services or ingresses, and the zone itself.
func (w *World) Zones() []Zone {
	zones := map[string]*Zone{}
	if w.State.Zone != "" {
		named(zones, w.State.Zone)
	}
	for o := range w.State.From(w.Snapshot, kind.Zones.Name, "", "") {
		z := named(zones, o.Envelope().Name)
		z.Enabled = resource.SpecOf(o).(*kind.Zone).Enabled
		w.connectionOf(z)
	}
	for dp, k := range w.proxies("") {
		named(zones, w.State.ZoneOf(&dp.Meta)).Dataplanes.add(w.status(dp, k))
	}
	for o := range w.State.Services.From(w.Snapshot, "", "") {
		services := &named(zones, w.State.ZoneOf(&o.Meta)).Services
		services.Total++
		if o.Spec.State == "Available" {
			services.Available++
		}
	}
	for o := range w.State.ZoneAddresses.From(w.Snapshot, "", "") {
		z := named(zones, w.State.ZoneOf(&o.Meta))
		for _, a := range o.Spec.Ingresses {
			z.Ingresses = append(z.Ingresses, ZoneIngress{o.Mesh, a.Name, a.Listener(), a.Healthy})
		}
	}
	all := []Zone{}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		all = append(all, *zones[name])
	}
	return all
}

// named answers a zone of a name, made for the first who asks.
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
			*z.Connected, z.Since, z.Version, z.Instance = true, &s.ConnectTime, s.Version.Text(), s.ControlPlaneInstanceID
		case !*z.Connected:
			z.Since, z.Version = s.DisconnectTime, s.Version.Text()
		}
	}
	z.Lag, z.LastItem = insight.Lag, insight.LastItem
	z.Rejected = append(z.Rejected, insight.Rejected...)
	z.Store, z.RejectedStores, z.DoubtedDeletions = insight.Store, insight.RejectedStores, insight.DoubtedDeletions
	if w.Links != nil {
		z.Kinds = w.Links(z.Name)
	}
}

// Zone answers what is known of a zone's connection, an empty insight where it never connected. It is the
// caller's.
func (w *World) Zone(name string) *kind.ZoneInsight {
	insight := &kind.ZoneInsight{}
	if o, ok := w.State.Find(table.Eval(w.Snapshot), kind.ZoneInsights.Key("", name)); ok {
		*insight = *resource.SpecOf(o).(*kind.ZoneInsight)
	}
	insight.Subscriptions = slices.Clone(insight.Subscriptions)
	for i := range insight.Subscriptions {
		s := &insight.Subscriptions[i]
		last, ended := w.Expired(s.ControlPlaneInstanceID)
		s.DisconnectTime = disconnected(last, ended, s.ConnectTime, s.DisconnectTime)
	}
	if w.Links != nil {
		links := w.Links(name)
		insight.Lag, insight.LastItem = LagOf(links)
		if last := len(insight.Subscriptions) - 1; links != nil && last >= 0 && insight.Subscriptions[last].DisconnectTime == nil {
			insight.Subscriptions[last].Status = zoneStatus(links, insight.LastItem)
		}
	}
	return insight
}

// zoneStatus counts what went to a zone over its streams.
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

// LagOf sums up the kinds: the longest lag, and when the last item of any went.
func LagOf(kinds map[string]KindLink) (lag kind.Duration, last *kind.Time) {
	for _, k := range kinds {
		lag = max(lag, k.Lag)
		if k.LastItem != nil && (last == nil || k.LastItem.After(last.Time)) {
			last = k.LastItem
		}
	}
	return lag, last
}

// ZoneConnected says whether a zone's control plane is connected.
func (w *World) ZoneConnected(name string) bool {
	return slices.ContainsFunc(w.Zone(name).Subscriptions, func(s kind.ZoneSubscription) bool { return s.DisconnectTime == nil })
}
