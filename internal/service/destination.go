package service

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weft/internal/state"
	"weft/internal/zoneroute"
	"weft/kind"
	"weft/resource"
)

// DestinationKind is the kind of service that a destination is a port of.
type DestinationKind int

var destinationKinds = [...]struct {
	info  *resource.Info
	short string
}{
	MeshService:      {&kind.MeshServices.Info, "msvc"},
	MultiZoneService: {&kind.MeshMultiZoneServices.Info, "mzsvc"},
	ExternalService:  {&kind.MeshExternalServices.Info, "extsvc"},
}

// String returns the name of the resource's kind, "MeshService".
func (k DestinationKind) String() string { return destinationKinds[k].info.Name }

// Locality is a part of a destination that has endpoints of its own. The zero value is the whole.
type Locality string

// Kinds of destinations.
const (
	MeshService DestinationKind = iota
	MultiZoneService
	ExternalService
)

// Localities of a [MultiZoneService].
const (
	LocalLocality  Locality = "local"  // the servers of the client's zone
	RemoteLocality Locality = "remote" // the ingresses of the other zones
)

// maxRemotes is the number of localities of remote zones: of priorities.
const maxRemotes = 64

// RemoteAt returns the locality of the remote zones of a priority, from 0: "remote", "remote-2", "remote-3".
func RemoteAt(priority int) Locality {
	if priority == 0 {
		return RemoteLocality
	}
	return Locality(fmt.Sprintf("%s-%d", RemoteLocality, priority+1))
}

// IsRemote reports whether it has ingresses of other zones.
func (l Locality) IsRemote() bool { return strings.HasPrefix(string(l), string(RemoteLocality)) }

// ExternalLocality is the only locality of an [ExternalService], for its zone egresses: its servers. A proxy may be
// client and egress at once.
const ExternalLocality Locality = "external"

var localities = func() []Locality {
	all := []Locality{LocalLocality, ExternalLocality}
	for priority := range maxRemotes {
		all = append(all, RemoteAt(priority))
	}
	return all
}()

// DestinationKey identifies one port of a service, or one locality of the port; without a port, the service.
type DestinationKey struct {
	Kind DestinationKind
	Mesh string
	// Zone is the zone that owns it. It is empty for a MultiZoneService, which belongs to the mesh, and for an
	// ExternalService that global owns.
	Zone string
	// Service is its name on its owner, on Kubernetes NAME.NAMESPACE ([kind.OwnerName]).
	Service  string
	Port     uint32
	Locality Locality
	// Longer is true where its row has the longer name ([kind.LongerSyncedName]), since another service has the name
	// that it had first.
	Longer bool `json:",omitempty"`
}

// longerRow marks a destination with [DestinationKey].Longer in its name.
const longerRow = "copy"

// ParseDestination parses the output of [DestinationKey.String], also with a suffix after another "_". No part of a
// destination's name contains an underscore.
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
	key.Longer = parts[4] == longerRow
	if len(parts) == 8 && slices.Contains(localities, Locality(parts[7])) {
		key.Locality = Locality(parts[7])
	}
	return key, true
}

// HasName reports whether a control plane has the service under a name: its owner, or another one with a copy.
func (k DestinationKey) HasName(name string) bool {
	info, owner := destinationKinds[k.Kind].info, kind.Owner{Zone: k.Zone}
	return name == k.Service || kind.HasSyncedName(info) && (name == kind.SyncedName(info, k.Mesh, k.Service, owner) ||
		name == kind.LongerSyncedName(k.Mesh, k.Service, owner))
}

// CompareDestinations compares two destinations.
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
	// Local and Zones are the servers of a MultiZoneService. Local is nil where no member is in this zone. Zones are
	// those of the remote zones, sorted by zone. A zone that is unreachable for another reason than a missing egress is
	// omitted.
	Local *Servers
	Zones []Servers
	// ClientZone is the zone of the clients of a MultiZoneService.
	ClientZone string `json:",omitempty"`
	// Effective are the confs of the traffic of some proxies. The stages of destinations leave it empty; see
	// [Destination.WithConfs].
	Effective Effective
}

// WithConfs returns the destination as proxies with effective confs reach it.
func (d *Destination) WithConfs(e Effective) *Destination {
	with := *d
	with.Effective = e
	return &with
}

// Servers are the servers of a destination in one zone.
type Servers struct {
	// Zone is a remote zone; empty: they are in the clients' zone, or outside the mesh.
	Zone string
	// Way is Direct where they are in the same zone. On every other, the SNI selects the destination.
	Way zoneroute.Way
	SNI string
	// ServiceSNIs are the SNIs of the MeshServices of a remote zone that a MultiZoneService selects, sorted.
	ServiceSNIs []string `json:",omitempty"`
	// Identities are the SPIFFE IDs that they may present, sorted; empty: they are plaintext.
	Identities []string
	// TCPInbound is true where the port is HTTP and a targeted inbound is TCP. HTTP/1.1 then reaches the application,
	// and no inbound has read its responses. It is known for servers in the same zone only.
	TCPInbound bool
	// TrustDomain is the common trust domain of the Identities, where the mesh trusts several. Clients trust the roots
	// of this domain only, so that no other domain's CA can issue certificates for its servers. Empty: clients trust
	// all roots of the mesh.
	TrustDomain string
	// Untrusted is true where the mesh trusts other domains than TrustDomain alone. Clients accept no server then. To
	// wait for roots would keep an Envoy that starts from serving anything.
	Untrusted bool `json:",omitempty"`
}

// Row returns the row of a destination's service among the rows of its kind. It depends on the key only.
func (s *Stage) Row(key DestinationKey) state.ServiceKey {
	return state.ServiceKey{
		Mesh: key.Mesh,
		Name: s.state.StoredName(destinationKinds[key.Kind].info, key.Mesh, key.Zone, key.Service, key.Longer),
	}
}

// KeyOf returns the key of a MeshService as a destination, without a port.
func (s *Stage) KeyOf(service *resource.Object[kind.MeshService]) DestinationKey {
	key := DestinationKey{Mesh: service.Mesh, Zone: s.state.ZoneOf(&service.Meta), Service: service.Name}
	if key.Zone != s.state.Zone {
		key.Service = kind.OwnerName(&kind.MeshServices.Info, &service.Meta)
		key.Longer = s.state.HasLongerName(&service.Meta)
	}
	return key
}

// ListsOf returns the endpoint lists of a service that its own zone computes, one for each port; none in any other
// zone.
func (s *Stage) ListsOf(service *resource.Object[kind.MeshService]) []DestinationKey {
	if s.state.Zone == "" || s.state.IsRemote(service) {
		return nil
	}
	var lists []DestinationKey
	for _, port := range service.Spec.Ports {
		lists = append(lists, s.KeyOf(service).WithPort(port.Port))
	}
	return lists
}

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

// String returns the destination's name in every place that shows one: clusters, endpoint assignments, routes.
// "kri_msvc_default_east__backend_80": kind, mesh, zone, namespace (empty on machines), name, port; a locality follows
// with another "_". In place of the namespace is "copy" where the service has the longer name.
func (k DestinationKey) String() string {
	namespace := ""
	if k.Longer {
		namespace = longerRow
	}
	name := fmt.Sprintf("kri_%s_%s_%s_%s_%s_%d", destinationKinds[k.Kind].short, k.Mesh, k.Zone, namespace, k.Service,
		k.Port)
	if k.Locality != "" {
		name += "_" + string(k.Locality)
	}
	return name
}

// WithPort returns one port of the service.
func (k DestinationKey) WithPort(port uint32) DestinationKey {
	k.Port = port
	return k
}

// WithLocality returns one locality of the destination.
func (k DestinationKey) WithLocality(locality Locality) DestinationKey {
	k.Locality = locality
	return k
}

// ServiceKey returns the service that the destination is a port of.
func (k DestinationKey) ServiceKey() DestinationKey { return k.WithPort(0).WithLocality("") }

// UseMTLS returns whether clients use mutual TLS with them: both sides have an identity.
func (s *Servers) UseMTLS(client bool) bool { return client && len(s.Identities) > 0 }

// ByEgress returns whether a zone egress of the clients' zone forwards to them.
func (s *Servers) ByEgress() bool { return s.Way == zoneroute.ByEgress }

// External returns whether they are outside the mesh, so that an egress dials them.
func (s *Servers) External() bool { return s.Way != zoneroute.Direct && s.Zone == "" }

// UnreachableReason returns why a client, with an identity or without, can't reach them; empty: it can. Zone proxies
// route by the SNI of mutual TLS, so a server without mutual TLS is reached in its own zone only.
func (s *Servers) UnreachableReason(secured bool) string {
	switch {
	case s.Way == zoneroute.Direct:
		return ""
	case s.External() && !secured:
		return "it is outside the mesh, which is reached through a zone egress, and that takes mutual TLS only: a " +
			"proxy without an identity reaches none"
	case secured && s.Way == zoneroute.NoEgress:
		return "no zone egress of this zone is ready, and what leaves the zone goes through one"
	case s.External() && len(s.Identities) == 0:
		return "no zone egress of this zone has an identity"
	case s.External():
		return ""
	case !secured:
		return fmt.Sprintf("its servers are in zone %s, and a proxy without an identity reaches none of another zone",
			s.Zone)
	case len(s.Identities) == 0:
		return fmt.Sprintf("its servers are in zone %s and have no identity, so that no other zone reaches them",
			s.Zone)
	case s.SNI == "":
		return fmt.Sprintf("zone %s has given the port no SNI, by which its ingress would know it", s.Zone)
	}
	return ""
}

// UntrustedReason returns why clients whose roots are from the control plane accept none of the servers; empty: they
// do.
func (s *Servers) UntrustedReason() string {
	if !s.Untrusted || s.External() {
		return ""
	}
	return fmt.Sprintf("its servers are of the trust domain %s, and no MeshTrust of the mesh has roots of it",
		s.TrustDomain)
}

// HasLocalities returns whether the destination's servers are in its localities.
func (d *Destination) HasLocalities() bool { return d.Key.Kind == MultiZoneService }

// AllServers returns the servers in every zone.
func (d *Destination) AllServers() []*Servers {
	if !d.HasLocalities() {
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

// HasTCPInbound returns whether any of its servers, as far as this zone knows them, has [Servers.TCPInbound].
func (d *Destination) HasTCPInbound() bool {
	return slices.ContainsFunc(d.AllServers(), func(servers *Servers) bool { return servers.TCPInbound })
}

// IsCrossZone returns whether any of its servers is in a remote zone.
func (d *Destination) IsCrossZone() bool {
	return slices.ContainsFunc(d.AllServers(), func(servers *Servers) bool { return servers.Zone != "" })
}

// UnreachableReason returns why a client, with an identity or without, can't reach the destination; empty: it can.
func (d *Destination) UnreachableReason(secured bool) string {
	switch {
	case !d.HasLocalities():
		return d.Servers.UnreachableReason(secured)
	case d.Local != nil || len(d.Remotes(secured)) > 0:
		return ""
	case d.crossZone(secured):
		return "its servers are in zones that the failover of a MeshLoadBalancingStrategy leaves out"
	case len(d.Zones) > 0:
		return d.Zones[0].UnreachableReason(secured)
	}
	return "no MeshService that its selector matches has this port with this protocol and can be reached from here"
}

// crossZone returns whether such clients reach servers of remote zones.
func (d *Destination) crossZone(secured bool) bool {
	return slices.ContainsFunc(d.Zones, func(zone Servers) bool { return zone.UnreachableReason(secured) == "" })
}
