package service

import (
	"cmp"
	"slices"

	"weft/internal/interned"
	"weft/internal/table"
	"weft/internal/zoneroute"
	"weft/kind"
	"weft/resource"
)

// List is an endpoint list of a destination, or of one of its localities, as some proxies use it. Lists that differ in
// their View alone have one name, and no proxy has two of them.
type List struct {
	DestinationKey
	View View
}

// View is what the policies of the clients make of the endpoints of a list, by value: equal views are equal values, of
// the size of a pointer. The zero value leaves them as they are published.
type View struct{ interned.Value[viewed] }

// viewed are the contents of a [View].
type viewed struct {
	// Zones are the remote zones whose ingresses are in the list, sorted; nil: those of the destination.
	Zones []string `json:",omitempty"`
	// AllZones is true where a list of the clients' own zone has the endpoints of the other zones too.
	AllZones bool `json:",omitempty"`
	// Overprovisioning is the factor, in percent, from the share of healthy endpoints to the share of the traffic that
	// stays; 0: the default.
	Overprovisioning uint32 `json:",omitempty"`
	// Grouped is true where the endpoints are divided into groups. Affinity are the groups before the last one.
	Grouped  bool       `json:",omitempty"`
	Affinity []affinity `json:",omitempty"`
	// Machine is the only IP family of the clients' machines, of which all endpoints are; empty: both.
	Machine kind.IPFamilies `json:",omitempty"`
}

// affinity is the group of the endpoints with a value of a label.
type affinity struct {
	Key    string
	Value  string `json:",omitempty"` // of the clients
	Weight uint32
}

func viewOf(v viewed) View {
	if view := interned.Make(v); view.String() != "{}" {
		return View{view}
	}
	return View{}
}

// MarshalText implements encoding.TextMarshaler.
func (v View) MarshalText() ([]byte, error) { return []byte(cmp.Or(v.String(), "{}")), nil }

// Affinity are the values of a client for the labels by which its policies group endpoints, by value. The zero value
// has none.
type Affinity = interned.Value[map[string]string]

// AffinityOf returns the values by label.
func AffinityOf(values map[string]string) Affinity {
	if len(values) == 0 {
		return Affinity{}
	}
	return interned.Make(values)
}

// IsGrouped reports whether the endpoints are divided into groups, so that clients with different values may use
// different lists.
func (l List) IsGrouped() bool { return l.View.Get().Grouped }

// ListFor returns a list as clients with an affinity use it. Groups that no server of the list can be in are left out,
// so that clients whose values make no difference share the list.
func (s *Stage) ListFor(r *table.Reader, list List, of Affinity) List {
	if !list.IsGrouped() {
		return list
	}
	v := list.View.Get()
	values := of.Get()
	v.Affinity = slices.DeleteFunc(slices.Clone(v.Affinity), func(a affinity) bool {
		value, ok := values[a.Key]
		return !ok || !slices.Contains(s.AffinityValues.Get(r, AffinityQuery{list.WithLocality(""), a.Key}), value)
	})
	for i := range v.Affinity {
		v.Affinity[i].Value = values[v.Affinity[i].Key]
	}
	list.View = viewOf(v)
	return list
}

// OnMachines returns a list as clients on machines of one IP family use it; empty: of both.
func (l List) OnMachines(machine kind.IPFamilies) List {
	if machine != "" {
		v := l.View.Get()
		v.Machine = machine
		l.View = viewOf(v)
	}
	return l
}

// AffinityQuery is a label of the servers of a destination in this zone.
type AffinityQuery struct {
	Destination DestinationKey // without a locality
	Label       string
}

// affinityValues returns the values of a label that the servers of a destination in this zone have, sorted. Whether a
// server is ready makes no difference, so that endpoints come and go without another proxy group.
func (s *Stage) affinityValues(r *table.Reader, q AffinityQuery) []string {
	var values []string
	add := func(key DestinationKey) {
		row := s.Row(key)
		service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
		if !ok || key.Zone != s.state.Zone {
			return
		}
		for dp, in := range s.SelectedInbounds(r, service) {
			if value := affinityValue(dp, in.Tags, q.Label); value != "" {
				values = append(values, value)
			}
		}
	}
	switch q.Destination.Kind {
	case MeshService:
		add(q.Destination)
	case MultiZoneService:
		_, selected := s.selectedServices(r, q.Destination)
		for _, t := range selected {
			add(t.Service)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// AffinityValue returns the value of a label by which policies compare a client: that of its Dataplane, or of the tag
// of the first inbound that has it.
func AffinityValue(dp *resource.Object[kind.Dataplane], label string) string {
	for _, in := range dp.Spec.Networking.Inbound {
		if value := affinityValue(dp, in.Tags, label); value != "" {
			return value
		}
	}
	return dp.Labels[label]
}

func affinityValue(dp *resource.Object[kind.Dataplane], tags map[string]string, label string) string {
	return cmp.Or(dp.Labels[label], tags[label])
}

// Lists returns the endpoint lists that such clients use, in the order of preference; none where they can't reach it.
func (d *Destination) Lists(secured bool) []List {
	if d.UnreachableReason(secured) != "" {
		return nil
	}
	if !d.HasLocalities() {
		list := List{DestinationKey: d.Key}
		if d.Servers.Way == zoneroute.Direct {
			list.View = viewOf(d.grouped(viewed{}))
		}
		return []List{list}
	}
	var lists []List
	if d.Local != nil {
		lists = append(lists, List{d.Key.WithLocality(LocalLocality), viewOf(d.localView(secured))})
	}
	factor := cmp.Or(d.Effective.LoadBalancing.Locality().Overprovisioning(), DefaultOverprovisioning)
	for i, remote := range d.Remotes(secured) {
		list := List{DestinationKey: d.Key.WithLocality(RemoteAt(i))}
		if !remote.All {
			list.View = viewOf(viewed{Overprovisioning: factor, Zones: remote.zones()})
		}
		lists = append(lists, list)
	}
	return lists
}

// DefaultOverprovisioning keeps all traffic with the endpoints of one priority while one of 1,000 of them is healthy.
const DefaultOverprovisioning = 100_000

func (d *Destination) localView(secured bool) viewed {
	awareness := d.Effective.LoadBalancing.Locality()
	if awareness.AllAlike() {
		return viewed{AllZones: d.MixesZones(secured)}
	}
	return d.grouped(viewed{Overprovisioning: awareness.Overprovisioning()})
}

// grouped returns the view with the groups of endpoints that policies make.
func (d *Destination) grouped(v viewed) viewed {
	for _, tag := range d.Effective.LoadBalancing.Locality().Affinity() {
		v.Grouped = true
		v.Affinity = append(v.Affinity, affinity{Key: tag.Key, Weight: *tag.Weight})
	}
	return v
}

// MixesZones reports whether the servers of the clients' zone and those of others are in one list. Plaintext servers
// are not, since the servers of other zones never are plaintext.
func (d *Destination) MixesZones(secured bool) bool {
	return d.Local != nil && d.Local.UseMTLS(secured) && d.Effective.LoadBalancing.Locality().AllAlike() &&
		d.crossZone(secured)
}

// Remote are the remote zones of one priority.
type Remote struct {
	Zones []Servers // sorted by zone
	All   bool      // they are all remote zones of the destination
}

func (r *Remote) zones() []string {
	names := make([]string, len(r.Zones))
	for i := range r.Zones {
		names[i] = r.Zones[i].Zone
	}
	return names
}

// Remotes returns the remote zones that such clients use, in the order of preference. A policy with a failover has a
// priority for each of its entries. Through an egress, each zone of an entry is a priority of its own, and so is each
// MeshService of the zone: the SNI of the MeshMultiZoneService would leave the choice of the zone to the egress.
func (d *Destination) Remotes(secured bool) []Remote {
	if !d.crossZone(secured) {
		return nil
	}
	entries := d.Effective.LoadBalancing.Locality().Priorities()
	if entries == nil {
		return []Remote{{d.Zones, true}}
	}
	var remotes []Remote
	left := slices.Clone(d.Zones)
	for i := range entries {
		if !entries[i].IsFrom(d.ClientZone) {
			continue
		}
		var zones []Servers
		left = slices.DeleteFunc(left, func(zone Servers) bool {
			selected := entries[i].To.Select(zone.Zone)
			if selected {
				zones = append(zones, zone)
			}
			return selected
		})
		switch {
		case len(zones) == 0:
		case len(zones) == len(d.Zones):
			remotes = append(remotes, Remote{zones, true})
		case zones[0].ByEgress():
			remotes = append(remotes, throughEgress(zones)...)
		default:
			remotes = append(remotes, Remote{Zones: zones})
		}
	}
	return remotes[:min(len(remotes), maxRemotes)]
}

// throughEgress returns zones as priorities that an egress forwards by the SNI of the zone's own service.
func throughEgress(zones []Servers) []Remote {
	var remotes []Remote
	for _, zone := range zones {
		for _, sni := range zone.ServiceSNIs {
			zone.SNI = sni
			remotes = append(remotes, Remote{Zones: []Servers{zone}})
		}
	}
	return remotes
}

// EndpointsOfList returns the endpoints of one of the [Destination.Lists] of a service of any kind, as its clients use
// them.
func (s *Stage) EndpointsOfList(r *table.Reader, list List) *Endpoints {
	if list.View == (View{}) {
		return s.EndpointsOf(r, list.DestinationKey)
	}
	v := list.View.Get()
	endpoints := &Endpoints{Destination: list.DestinationKey, Overprovisioning: v.Overprovisioning}
	switch {
	case v.Zones != nil && !s.routes.ByEgress.Get(r, list.Mesh):
		endpoints.Endpoints = s.ingressesOf(r, list.DestinationKey, v.Zones)
	case v.AllZones:
		// Envoy rejects a cluster that negotiates the HTTP version and has a plaintext transport socket.
		endpoints.Endpoints = slices.DeleteFunc(slices.Clone(s.EndpointsOf(r, list.DestinationKey).Endpoints),
			func(e Endpoint) bool { return e.Plaintext })
		for _, e := range s.EndpointsOf(r, list.WithLocality(RemoteLocality)).Endpoints {
			e.Egress = e.Zone == ""
			endpoints.Endpoints = append(endpoints.Endpoints, e)
		}
		endpoints.Endpoints = InOrder(endpoints.Endpoints)
	default:
		endpoints.Endpoints = slices.Clone(s.EndpointsOf(r, list.DestinationKey).Endpoints)
	}
	endpoints.Endpoints = slices.DeleteFunc(endpoints.Endpoints, func(e Endpoint) bool {
		return v.Machine.Lacks(e.Address)
	})
	if v.Grouped {
		s.group(r, endpoints, v.Affinity)
	}
	return endpoints
}

// group divides endpoints into groups. The last group, of the weight 1, has those that no other has.
func (s *Stage) group(r *table.Reader, endpoints *Endpoints, by []affinity) {
	for _, a := range by {
		endpoints.Groups = append(endpoints.Groups, EndpointGroup{Name: a.Key + "=" + a.Value, Weight: a.Weight})
	}
	endpoints.Groups = append(endpoints.Groups, EndpointGroup{Weight: 1})
	for i := range endpoints.Endpoints {
		e := &endpoints.Endpoints[i]
		e.Group = len(by)
		dp, ok := s.state.Dataplanes.Find(r, e.Proxy.Mesh, e.Proxy.Name)
		if !ok {
			continue
		}
		tags := inboundTags(s.state.NetworkingOf(r, dp), e)
		if at := slices.IndexFunc(by, func(a affinity) bool {
			return affinityValue(dp, tags, a.Key) == a.Value
		}); at >= 0 {
			e.Group = at
		}
	}
	slices.SortStableFunc(endpoints.Endpoints, func(a, b Endpoint) int { return cmp.Compare(a.Group, b.Group) })
}

// inboundTags returns the tags of the inbound at an endpoint's address.
func inboundTags(n *kind.Networking, e *Endpoint) map[string]string {
	for in := range selectable(n) {
		if in.Address == e.Address && in.Port == e.Port {
			return in.Tags
		}
	}
	return nil
}

// affinityOnly reads one field of effective confs.
type affinityOnly struct {
	LoadBalancing kind.LoadBalancingConf `json:"MeshLoadBalancingStrategy"`
}

// AffinityLabels returns the labels by which effective confs group the endpoints of a destination.
func AffinityLabels(confs interface{ Read(any) }) []string {
	var read affinityOnly
	confs.Read(&read)
	var labels []string
	for _, tag := range read.LoadBalancing.Locality().Affinity() {
		labels = append(labels, tag.Key)
	}
	return labels
}
