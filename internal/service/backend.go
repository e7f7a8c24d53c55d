package service

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// BackendQuery is a reference of a route to one port of a service.
type BackendQuery struct {
	Kind   DestinationKind
	Mesh   string
	Labels map[string]string // with the display name and the zone, as to items match them
	Port   uint32            // its number, in place of Section
	// Section is the name or the number of the port. A MeshExternalService has one port, which needs neither.
	Section string
	// HTTP is true where proxies read the requests of the route, so that they have to read those of the backend too.
	HTTP bool
	// Namespace is that of the policy that refers; empty: it has none.
	Namespace string
}

// ResolveBackend returns the port of the service that a route refers to, or the reason for which there is none. Of
// several services with the labels, those of one namespace count (see [Stage.InOneNamespace]). Of these, one of this
// zone is taken first, and then the oldest one.
func (s *Stage) ResolveBackend(r *table.Reader, q BackendQuery) (backend RouteBackend, unresolved string) {
	key, unresolved := s.BackendOf(r, q)
	if unresolved != "" {
		return backend, unresolved
	}
	return s.Routes.Get(r, key).Rules[0].Backends[0], ""
}

// BackendOf returns the destination of a reference of a route, or the reason for which there is none.
func (s *Stage) BackendOf(r *table.Reader, q BackendQuery) (to DestinationKey, unresolved string) {
	services := s.InOneNamespace(r, s.labeledAs(r, q), q.Labels, q.Namespace)
	if len(services) == 0 {
		return to, missing(q)
	}
	for _, service := range services {
		port, ok := s.portOf(r, service, q)
		if !ok {
			unresolved = cmp.Or(unresolved, fmt.Sprintf("%s %s has no port %s", q.Kind, service.Service,
				cmp.Or(q.Section, strconv.Itoa(int(q.Port)))))
			continue
		}
		if of := cmp.Or(port.AppProtocol, kind.TCP); of.IsHTTP() != q.HTTP {
			unresolved = cmp.Or(unresolved, fmt.Sprintf("port %d of %s %s is %s, and the route is one of %s", port.Port,
				q.Kind, service.Service, of, routed(q.HTTP)))
			continue
		}
		return service.WithPort(port.Port), ""
	}
	return to, unresolved
}

func missing(q BackendQuery) string {
	return fmt.Sprintf("there is no %s %s", q.Kind, ShownLabels(q.Labels))
}

// ProtocolOf returns the protocol of a port of a service; empty where there is no such port.
func (s *Stage) ProtocolOf(r *table.Reader, key DestinationKey) kind.Protocol {
	port, ok := kind.PortNumbered(s.PortsOf(r, key), key.Port)
	if !ok {
		return ""
	}
	return cmp.Or(port.AppProtocol, kind.TCP)
}

func routed(http bool) string {
	if http {
		return "HTTP requests"
	}
	return "TCP connections"
}

// ShownLabels returns the labels by which a target selects resources, as text.
func ShownLabels(labels map[string]string) string {
	name, zone := labels[resource.DisplayName], labels[resource.ZoneLabel]
	switch {
	case name != "" && len(labels) == 1:
		return name
	case name != "" && zone != "" && len(labels) == 2:
		return name + " in the zone " + zone
	}
	text := "with the labels"
	for i, name := range slices.Sorted(maps.Keys(labels)) {
		separator := " "
		if i > 0 {
			separator = ", "
		}
		text += separator + name + "=" + labels[name]
	}
	return text
}

// labeledAs returns the services of a kind with labels, in the order in which references take them. The display name
// and the zone of a service are labels, whether or not its row has them.
func (s *Stage) labeledAs(r *table.Reader, q BackendQuery) []DestinationKey {
	written := maps.Clone(q.Labels)
	delete(written, resource.DisplayName)
	delete(written, resource.ZoneLabel)
	keys := s.Labeled.Get(r, QueryLabels(q.Kind, q.Mesh, written))
	name, zone := q.Labels[resource.DisplayName], q.Labels[resource.ZoneLabel]
	keys = slices.DeleteFunc(slices.Clone(keys), func(key DestinationKey) bool {
		return name != "" && !s.hasDisplayName(r, key, name) || zone != "" && key.Zone != zone
	})
	if len(keys) < 2 {
		return keys
	}
	created := map[DestinationKey]int64{}
	for _, key := range keys {
		if o := s.rowOf(r, key); o != nil {
			created[key] = o.Envelope().Created.UnixNano()
		}
	}
	remote := func(key DestinationKey) int {
		if key.Zone == s.state.Zone {
			return 0
		}
		return 1
	}
	slices.SortFunc(keys, func(a, b DestinationKey) int {
		return cmp.Or(cmp.Compare(remote(a), remote(b)), cmp.Compare(created[a], created[b]), CompareDestinations(a, b))
	})
	return keys
}

// hasDisplayName returns whether a service has a display name. Only the row of one that may have it is read.
func (s *Stage) hasDisplayName(r *table.Reader, key DestinationKey, name string) bool {
	if key.Service == name {
		return true
	}
	if !strings.HasPrefix(key.Service, name+".") {
		return false
	}
	o := s.rowOf(r, key)
	return o != nil && kind.DisplayNameOf(o.Envelope()) == name
}

// rowOf returns the row of a service; nil where there is none.
func (s *Stage) rowOf(r *table.Reader, key DestinationKey) resource.Any {
	row := s.Row(key)
	o, ok := s.state.Find(r, resource.Key{Kind: key.Kind.String(), Mesh: row.Mesh, Name: row.Name})
	if !ok {
		return nil
	}
	return o
}

// InOneNamespace returns the services that a reference by labels means, of those that have the labels. The owner of any
// namespace may write labels, so the MeshServices of one namespace count: that of the policy that refers, or else that
// of the oldest service. MeshServices without a namespace count always. A reference that names the namespace means all
// of them, and so does one in a mesh that exempts labels without a voucher.
func (s *Stage) InOneNamespace(r *table.Reader, keys []DestinationKey, labels map[string]string,
	namespace string) []DestinationKey {
	if len(keys) < 2 || keys[0].Kind != MeshService || !kind.StatesLabels(labels) {
		return keys
	}
	namespaces := s.namespacesOf(r, keys)
	if len(namespaces) < 2 || s.identity.Exempt.Get(r, keys[0].Mesh).Tags {
		return keys
	}
	counts := namespaces[0]
	if slices.Contains(namespaces, namespace) {
		counts = namespace
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key DestinationKey) bool {
		o := s.rowOf(r, key)
		return o != nil && o.Envelope().Label(kind.NamespaceLabel) != "" &&
			o.Envelope().Label(kind.NamespaceLabel) != counts
	})
}

// portOf returns the port of a service with a name or a number. A name comes before an equal number.
func (s *Stage) portOf(r *table.Reader, key DestinationKey, q BackendQuery) (port kind.ServicePort, ok bool) {
	ports := s.PortsOf(r, key)
	if q.Kind == ExternalService && q.Port == 0 && len(ports) > 0 {
		return ports[0], true
	}
	byName := slices.IndexFunc(ports, func(p kind.ServicePort) bool { return q.Section != "" && p.Name == q.Section })
	if byName >= 0 {
		return ports[byName], true
	}
	number := q.Port
	if n, err := strconv.ParseUint(q.Section, 10, 16); err == nil {
		number = uint32(n)
	}
	return kind.PortNumbered(ports, number)
}
