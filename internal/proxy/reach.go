package proxy

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// selection is one entry of the reach of a proxy group.
type selection struct {
	Kind   service.DestinationKind `json:"k,omitempty"`
	Name   string                  `json:"n,omitempty"` // of the row
	Labels map[string]string       `json:"l,omitempty"`
	Port   uint32                  `json:"p,omitempty"`
}

// everything is the reach of a proxy that reaches all services of its mesh.
const everything = "*"

// nothing is the reach of a proxy that reaches none.
var nothing = canonical(nil)

// canonical returns a text of selections. Equal sets have equal texts.
func canonical(selections []selection) string {
	written := make([]string, 0, len(selections))
	for _, sel := range selections {
		raw, _ := json.Marshal(sel) // maps are written in the order of their keys
		written = append(written, string(raw))
	}
	slices.Sort(written)
	return "[" + strings.Join(slices.Compact(written), ",") + "]"
}

func selectionOf(ref *kind.BackendRef) selection {
	sel := selection{Name: ref.Name, Labels: ref.Labels, Port: ref.Port}
	_ = sel.Kind.UnmarshalText([]byte(ref.Kind)) // a validated kind of destinations
	return sel
}

// ReachOf returns the services that the application of a Dataplane with some networking reaches, as [Group.Reach] has
// them.
func (s *Stage) ReachOf(r *table.Reader, mesh string, n *kind.Networking) string {
	return s.reach(r, mesh, n.TransparentProxying, s.explicit(r, mesh, n.Outbound))
}

func (s *Stage) reach(r *table.Reader, mesh string, t *kind.TransparentProxying, explicit []ExplicitOutbound) string {
	if t != nil && t.ReachableBackends == nil && t.ReachableServices == nil {
		return everything
	}
	var selections []selection
	for _, out := range explicit {
		to := out.Destination
		selections = append(selections, selection{Kind: to.Kind, Name: s.services.Row(to).Name, Port: to.Port})
	}
	if t != nil && t.ReachableBackends != nil {
		for i := range t.ReachableBackends.Refs {
			selections = append(selections, selectionOf(&t.ReachableBackends.Refs[i]))
		}
	}
	if t != nil {
		for _, tag := range t.ReachableServices {
			for _, service := range s.services.Tagged.Get(r, state.TagKey(mesh, kind.ServiceTag, tag)) {
				selections = append(selections, selection{Name: s.services.Row(service).Name})
			}
		}
	}
	return canonical(selections)
}

// ReachKey identifies the destinations that proxies of a mesh reach.
type ReachKey struct {
	Mesh     string
	Services string // as [Group.Reach] has them
}

// ReachKey returns the key of the destinations that the proxies of the group reach.
func (g Group) ReachKey() ReachKey { return ReachKey{g.Mesh, g.Reach} }

func (s *Stage) reached(r *table.Reader, reach ReachKey) []service.DestinationKey {
	var keys []service.DestinationKey
	add := func(services []service.DestinationKey, wanted uint32) {
		for _, service := range services {
			for _, port := range s.services.Ports.Get(r, service) {
				if wanted == 0 || wanted == port {
					keys = append(keys, service.WithPort(port))
				}
			}
		}
	}
	if reach.Services == everything {
		add(s.services.Destinations.Get(r, reach.Mesh), 0)
	} else {
		var selections []selection
		if err := json.Unmarshal([]byte(reach.Services), &selections); err != nil {
			panic("proxy: the reach of a proxy group is written by canonical: " + err.Error())
		}
		for _, sel := range selections {
			add(s.selected(r, reach.Mesh, sel), sel.Port)
		}
	}
	slices.SortFunc(keys, service.CompareDestinations)
	return slices.Compact(keys)
}

// reachParts is the number of parts into which the destinations that proxies reach are divided: a changed destination
// collects one part again.
const reachParts = 16

// ReachPart is a part of the destinations that proxies reach. All ports of a service are in one part.
type ReachPart struct {
	ReachKey
	hash uint32 // of the services' names
}

// Parts returns all parts.
func (k ReachKey) Parts() []ReachPart {
	parts := make([]ReachPart, reachParts)
	for hash := range parts {
		parts[hash] = ReachPart{k, uint32(hash)}
	}
	return parts
}

func (s *Stage) reachedPart(r *table.Reader, part ReachPart) (keys []service.DestinationKey) {
	for _, d := range s.Reached.Get(r, part.ReachKey) {
		h := fnv.New32a()
		h.Write([]byte(d.Service))
		if h.Sum32()%reachParts == part.hash {
			keys = append(keys, d)
		}
	}
	return keys
}

// selected returns the services of a selection: the named one, or all that have the labels.
func (s *Stage) selected(r *table.Reader, mesh string, sel selection) []service.DestinationKey {
	if sel.Name == "" {
		return s.services.Labeled.Get(r, service.QueryLabels(sel.Kind, mesh, sel.Labels))
	}
	key := s.services.Named.Get(
		r,
		service.NameQuery{Kind: sel.Kind, ServiceKey: state.ServiceKey{Mesh: mesh, Name: sel.Name}},
	)
	if key == (service.DestinationKey{}) {
		return nil
	}
	return []service.DestinationKey{key}
}

// OutboundsOf returns the outbounds of a Dataplane with some networking whose destination exists.
func (s *Stage) OutboundsOf(r *table.Reader, mesh string, n *kind.Networking) []ExplicitOutbound {
	return s.explicit(r, mesh, n.Outbound)
}

// ReachesService reports whether a destination that proxies reach is a port of a service.
func (s *Stage) ReachesService(r *table.Reader, reach ReachKey, of service.DestinationKey) bool {
	reached := s.Reached.Get(r, reach)
	i, _ := slices.BinarySearchFunc(reached, of.ServiceKey(), service.CompareDestinations) // before all of its ports
	return i < len(reached) && reached[i].ServiceKey() == of.ServiceKey()
}

// ExplicitOutbound is one address of the proxy's machine at which a destination is reached.
type ExplicitOutbound struct {
	Address     string
	Port        uint32
	Destination service.DestinationKey
	Protocol    kind.Protocol
}

// explicit returns the outbounds whose destination exists. Other outbounds have no listener until it does.
func (s *Stage) explicit(r *table.Reader, mesh string, outbounds []kind.Outbound) []ExplicitOutbound {
	var explicit []ExplicitOutbound
	for i := range outbounds {
		key, ok := s.backendOf(r, mesh, &outbounds[i])
		if !ok {
			continue
		}
		route := s.services.Routes.Get(r, key)
		if route == nil {
			continue
		}
		explicit = append(explicit, ExplicitOutbound{
			Address:     cmp.Or(outbounds[i].Address, "127.0.0.1"),
			Port:        outbounds[i].Port,
			Destination: key,
			Protocol:    route.Protocol,
		})
	}
	return explicit
}

// backendOf returns the destination of an outbound: of the services that it refers to, the first one with the port;
// services of this zone come first. For a tag, the port is the service's first one.
func (s *Stage) backendOf(r *table.Reader, mesh string, out *kind.Outbound) (service.DestinationKey, bool) {
	var services []service.DestinationKey
	var wanted uint32
	if ref := out.BackendRef; ref != nil {
		services = slices.Clone(s.services.InOneNamespace(r, s.selected(r, mesh, selectionOf(ref)), ref.Labels, ""))
		slices.SortFunc(services, s.ownFirst)
		wanted = ref.Port
	} else {
		services = s.services.Tagged.Get(r, state.TagKey(mesh, kind.ServiceTag, out.Tags[kind.ServiceTag]))
	}
	for _, service := range services {
		for _, port := range s.services.Ports.Get(r, service) {
			if wanted == 0 || wanted == port {
				return service.WithPort(port), true
			}
		}
	}
	return service.DestinationKey{}, false
}

func (s *Stage) ownFirst(a, b service.DestinationKey) int {
	switch own, other := a.Zone == s.state.Zone, b.Zone == s.state.Zone; {
	case own && !other:
		return -1
	case other && !own:
		return 1
	}
	return service.CompareDestinations(a, b)
}

// DialedVIPs returns the virtual IPs of a service that the machines of proxies with these redirected IP families dial.
func DialedVIPs(vips []string, families kind.IPFamilies) []netip.Addr {
	addresses := make([]netip.Addr, 0, len(vips))
	for _, vip := range vips {
		if address, err := netip.ParseAddr(vip); err == nil {
			addresses = append(addresses, address)
		}
	}
	return kind.DialedVIPs(addresses, families)
}
