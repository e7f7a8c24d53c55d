package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weft/kind"
	"weft/resource"
)

// DestinationKind is what a destination is a port of.
type DestinationKind int

// Kinds of destinations.
const (
	MeshService DestinationKind = iota
	MultiZoneService
	ExternalService
)

var destinationKinds = [...]struct {
	info  *resource.Info
	short string
}{
	MeshService:      {&kind.MeshServices.Info, "msvc"},
	MultiZoneService: {&kind.MeshMultiZoneServices.Info, "mzsvc"},
	ExternalService:  {&kind.MeshExternalServices.Info, "extsvc"},
}

// String is the name of the resource's kind, "MeshService".
func (k DestinationKind) String() string { return destinationKinds[k].info.Name }

// MarshalText implements encoding.TextMarshaler.
func (k DestinationKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *DestinationKind) UnmarshalText(text []byte) error {
	for i := range destinationKinds {
		if of := DestinationKind(i); of.String() == string(text) {
			*k = of
			return nil
		}
	}
	return fmt.Errorf("%q is no kind of destination", text)
}

// Locality is a part of a destination that has endpoints of its own. The zero value is the whole.
type Locality string

// Legs of a [MultiZoneService].
const (
	LocalLocality  Locality = "local"  // the servers of the client's zone
	RemoteLocality Locality = "remote" // the ingresses of the other zones
)

// ExternalLocality is the one leg of an [ExternalService], which its zone egresses have: its servers. A proxy may be client
// and egress at once.
const ExternalLocality Locality = "external"

var legs = []Locality{LocalLocality, RemoteLocality, ExternalLocality}

// DestinationKey names one port of a service, or one leg of it; without a port, the service.
type DestinationKey struct {
	Kind DestinationKind
	Mesh string
	// Zone is the one that owns it; empty for a MultiZoneService, which is the mesh's, and for an
	// ExternalService that global owns.
	Zone string
	// Service is the name that its owner gave it.
	Service  string
	Port     uint32
	Locality Locality
}

// String is the destination's name in every place that shows one: clusters, assignments, routes.
// "kri_msvc_default_east__backend_80": kind, mesh, zone, namespace (empty on machines), name, port; a leg
// follows with another "_".
func (k DestinationKey) String() string {
	name := fmt.Sprintf("kri_%s_%s_%s__%s_%d", destinationKinds[k.Kind].short, k.Mesh, k.Zone, k.Service, k.Port)
	if k.Locality != "" {
		name += "_" + string(k.Locality)
	}
	return name
}

// At is one port of the service.
func (k DestinationKey) At(port uint32) DestinationKey {
	k.Port = port
	return k
}

// On is one leg of the destination.
func (k DestinationKey) On(leg Locality) DestinationKey {
	k.Locality = leg
	return k
}

// Of is the service that the destination is a port of.
func (k DestinationKey) Of() DestinationKey { return k.At(0).On("") }

// ParseDestination reads what [DestinationKey.String] writes, and what follows a port after another "_".
// No part of it contains that letter.
func ParseDestination(name string) (key DestinationKey, ok bool) {
	parts := strings.SplitN(name, "_", 8)
	if len(parts) < 7 || parts[0] != "kri" {
		return key, false
	}
	for i := range destinationKinds {
		if destinationKinds[i].short == parts[1] {
			key.Kind, ok = DestinationKind(i), true
		}
	}
	port, err := strconv.ParseUint(parts[6], 10, 16)
	if !ok || err != nil {
		return DestinationKey{}, false
	}
	key.Mesh, key.Zone, key.Service, key.Port = parts[2], parts[3], parts[5], uint32(port)
	if len(parts) == 8 && slices.Contains(legs, Locality(parts[7])) {
		key.Locality = Locality(parts[7])
	}
	return key, true
}

// CompareDestinations orders destinations.
func CompareDestinations(a, b DestinationKey) int {
	return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Locality, b.Locality))
}

// Destination is one port of a service, as its clients see it.
type Destination struct {
	Key      DestinationKey
	Protocol kind.Protocol
	VIPs     []string
	// Servers are those of a MeshService, or of an ExternalService.
	Servers
	// Local and Zones are those of a MultiZoneService: in this zone, nil where it has no member here, and in
	// each of the others, sorted by zone, as far as nothing but a missing egress keeps this zone from them.
	Local *Servers
	Zones []Servers
}

// Way is how clients get to servers.
type Way string

const (
	Direct    Way = ""          // they are dialled
	ByIngress Way = "ingress"   // through the ingresses of their zone
	ByEgress  Way = "egress"    // through the egresses of the clients' zone
	NoEgress  Way = "no egress" // so it would be, and none of these egresses is ready
)

// Servers are those who answer in one zone.
type Servers struct {
	// Zone is another than the clients'; empty: they are in the same one, or outside the mesh.
	Zone string
	// Way is Direct where they are in the same zone. On every other, SNI tells what is meant.
	Way Way
	SNI string
	// Identities are the SPIFFE IDs that they may present, sorted; empty: they are plain.
	Identities []string
	// TCPInbound says that the port reads requests and an inbound that it leads to does not: HTTP/1.1 gets through to the
	// application, whose responses no inbound has read. It is known of servers in the same zone alone.
	TCPInbound bool
	// TrustDomain is the one domain of the Identities, where the mesh believes several: its clients
	// believe that one's roots alone, so that no other domain's CA can speak for its servers. Empty: the
	// whole of what the mesh believes.
	TrustDomain string
}

// Secured says whether clients use mutual TLS with them: those that have an identity, where they do.
func (s *Servers) Secured(client bool) bool { return client && len(s.Identities) > 0 }

// External says whether they are an egress's to dial, of no mesh.
func (s *Servers) External() bool { return s.Way != Direct && s.Zone == "" }

// UnreachableReason is why a client, with an identity or without, can't reach them; empty: it can. Zone proxies tell by the
// server name of mutual TLS what is meant, so that whatever has none stays in its zone.
func (s *Servers) UnreachableReason(secured bool) string {
	switch {
	case s.Way == Direct:
		return ""
	case s.External() && !secured:
		return "it is outside the mesh, which is reached through a zone egress, and that takes mutual TLS only: a proxy without an identity reaches none"
	case secured && s.Way == NoEgress:
		return "no zone egress of this zone is ready, and what leaves the zone goes through one"
	case s.External() && len(s.Identities) == 0:
		return "no zone egress of this zone has an identity"
	case s.External():
		return ""
	case !secured:
		return fmt.Sprintf("its servers are in zone %s, and a proxy without an identity reaches none of another zone", s.Zone)
	case len(s.Identities) == 0:
		return fmt.Sprintf("its servers are in zone %s and have no identity, so that no other zone reaches them", s.Zone)
	case s.SNI == "":
		return fmt.Sprintf("zone %s has given the port no SNI, by which its ingress would know it", s.Zone)
	}
	return ""
}

// legged says whether the destination's servers are in its legs.
func (d *Destination) legged() bool { return d.Key.Kind == MultiZoneService }

// everyone are the servers in every zone.
func (d *Destination) everyone() []*Servers {
	if !d.legged() {
		return []*Servers{&d.Servers}
	}
	var all []*Servers
	if d.Local != nil {
		all = append(all, d.Local)
	}
	for i := range d.Zones {
		all = append(all, &d.Zones[i])
	}
	return all
}

// HasTCPInbound says whether any of its servers, as far as this zone knows them, has [Servers.TCPInbound].
func (d *Destination) HasTCPInbound() bool {
	return slices.ContainsFunc(d.everyone(), func(servers *Servers) bool { return servers.TCPInbound })
}

// UnreachableReason is why a client, with an identity or without, can't reach the destination; empty: it can.
func (d *Destination) UnreachableReason(secured bool) string {
	switch {
	case !d.legged():
		return d.Servers.UnreachableReason(secured)
	case d.Local != nil || d.crossZone(secured):
		return ""
	case len(d.Zones) > 0:
		return d.Zones[0].UnreachableReason(secured)
	}
	return "no MeshService that its selector matches has this port with this protocol and can be reached from here"
}

// crossZone says whether such clients reach servers of other zones.
func (d *Destination) crossZone(secured bool) bool {
	return slices.ContainsFunc(d.Zones, func(zone Servers) bool { return zone.UnreachableReason(secured) == "" })
}

// Lists are the lists of endpoints that such clients use, in the order in which they prefer them; none
// where they can't reach it.
func (d *Destination) Lists(secured bool) []DestinationKey {
	if d.UnreachableReason(secured) != "" {
		return nil
	}
	if !d.legged() {
		return []DestinationKey{d.Key}
	}
	var lists []DestinationKey
	if d.Local != nil {
		lists = append(lists, d.Key.On(LocalLocality))
	}
	if d.crossZone(secured) {
		lists = append(lists, d.Key.On(RemoteLocality))
	}
	return lists
}

// Endpoint is one server of a destination, or a zone proxy behind which its servers are.
type Endpoint struct {
	Address string
	Port    uint32
	// Zone is set on an ingress of another zone.
	Zone string
	// Proxy is set on whatever is in this zone: a server, or an egress.
	Proxy ProxyKey
	// Plaintext says that it is to have mutual TLS and does not serve it yet.
	Plaintext bool
}

// Endpoints are the endpoints of a destination that are published, sorted by zone, address and port.
type Endpoints struct {
	Destination DestinationKey
	Endpoints   []Endpoint
}

// Has says whether an endpoint is one of them.
func (e *Endpoints) Has(endpoint Endpoint) bool { return slices.Contains(e.Endpoints, endpoint) }

// inOrder sorts endpoints, and leaves an address of a zone there once: several inbounds may share it.
func (e *Endpoints) inOrder() *Endpoints {
	slices.SortFunc(e.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	e.Endpoints = slices.CompactFunc(e.Endpoints, func(a, b Endpoint) bool {
		return a.Zone == b.Zone && a.Address == b.Address && a.Port == b.Port
	})
	return e
}
