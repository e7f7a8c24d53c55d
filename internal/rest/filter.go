package rest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// statusColumn is the status of the resources of a list.
type statusColumn struct {
	values []inspect.Status
	reads  []resource.Descriptor
	// of returns a function that returns the status of a resource of a snapshot.
	of func(*snapshot) func(*listed) inspect.Status
}

// The statuses of lists.
var (
	dataplaneStatus = &statusColumn{
		values: []inspect.Status{inspect.Online, inspect.Offline, inspect.PartiallyDegraded, inspect.NotKnown},
		reads: []resource.Descriptor{kind.DataplaneInsights, kind.DataplaneListenerStatuses, kind.Zones,
			kind.ZoneInsights},
		of: func(m *snapshot) func(*listed) inspect.Status {
			return func(l *listed) inspect.Status { return m.StatusOf(&l.proxy) }
		},
	}
	zoneProxyStatus = &statusColumn{
		values: []inspect.Status{inspect.Online, inspect.Offline, inspect.NotKnown},
		reads: []resource.Descriptor{kind.ZoneIngressInsights, kind.ZoneEgressInsights, kind.Zones,
			kind.ZoneInsights},
		of: func(m *snapshot) func(*listed) inspect.Status {
			return func(l *listed) inspect.Status {
				if m.UnknownOf(l.Envelope()) != nil {
					return inspect.NotKnown
				}
				proxy, _ := state.ProxyOf(l.Key())
				return onlineIf(m.IsConnected(proxy))
			}
		},
	}
	// zoneStatus is the status of zones on global, which alone knows their connections.
	zoneStatus = &statusColumn{
		values: []inspect.Status{inspect.Online, inspect.Offline},
		reads:  []resource.Descriptor{kind.ZoneInsights},
		of: func(m *snapshot) func(*listed) inspect.Status {
			return func(l *listed) inspect.Status { return onlineIf(m.ZoneConnected(l.Key().Name)) }
		},
	}
	serviceStatus = &statusColumn{
		values: []inspect.Status{inspect.Online, inspect.Offline, inspect.PartiallyDegraded, inspect.NotAvailable,
			inspect.NotKnown},
		of: func(m *snapshot) func(*listed) inspect.Status {
			return func(l *listed) inspect.Status {
				if m.UnknownOf(l.Envelope()) != nil {
					return inspect.NotKnown
				}
				return m.Service(l.Any.(*resource.Object[kind.MeshService])).Status
			}
		},
	}
)

func onlineIf(connected bool) inspect.Status {
	if connected {
		return inspect.Online
	}
	return inspect.Offline
}

// statusOf returns the status of the resources of a kind, or nil.
func (a *api) statusOf(d resource.Descriptor) *statusColumn {
	switch d {
	case resource.Descriptor(kind.Dataplanes):
		return dataplaneStatus
	case resource.Descriptor(kind.ZoneIngresses), resource.Descriptor(kind.ZoneEgresses):
		return zoneProxyStatus
	case resource.Descriptor(kind.Zones):
		if a.Zone == "" {
			return zoneStatus
		}
	}
	return nil
}

// listFilter is a filter of lists, `filter[NAME]=VALUE`.
type listFilter struct {
	name, want string // want describes the value
	// ofProxies states that only lists of proxies have the filter, and ofStatus that those with a status have it.
	ofProxies, ofStatus bool
	// ofServices states that only lists of Dataplanes have the filter.
	ofServices bool
	// isOlder states that Kuma's API has it too, or that clients of earlier releases use it.
	isOlder bool
	// parse adds the filter to a query, or returns what is wrong with the value.
	parse func(p *queryParser, value string) (fault string)
}

// listFilters are the filters of all lists, beside those by labels.
var listFilters = []listFilter{
	{name: "zone", want: "ZONE", parse: (*queryParser).parseZone},
	{name: "status", want: "STATUS", ofStatus: true, isOlder: true, parse: (*queryParser).parseStatus},
	{name: "service", want: "NAME", ofServices: true, parse: (*queryParser).parseService},
	{name: "version.envoy", want: "VERSION", ofProxies: true, parse: func(p *queryParser, value string) string {
		return p.parseVersion(value, (*kind.ProxyVersion).Text)
	}},
	{name: "version.agent", want: "VERSION", ofProxies: true, parse: func(p *queryParser, value string) string {
		return p.parseVersion(value, (*kind.ProxyVersion).AgentText)
	}},
	{name: "address", want: "ADDRESS", ofProxies: true, parse: (*queryParser).parseAddress},
	{name: "certificate", want: "none", ofProxies: true, parse: (*queryParser).parseCertificate},
	{name: "certificate.expiresBefore", want: "TIME", ofProxies: true, parse: (*queryParser).parseExpiry},
}

// isOf reports whether a list has the filter.
func (f *listFilter) isOf(c *listing) bool {
	_, proxies := state.ProxyOf(resource.Key{Kind: c.of.Describe().Name})
	switch {
	case f.ofStatus:
		return c.status != nil
	case f.ofServices:
		return c.of == resource.Descriptor(kind.Dataplanes)
	}
	return !f.ofProxies || proxies
}

// parseFilters reads `filter[labels.NAME]=VALUE`, all of which must match, and the filters of the list.
func (p *queryParser) parseFilters() {
	labels := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		inner, isFilter := strings.CutPrefix(key, "filter[")
		inner, closed := strings.CutSuffix(inner, "]")
		if !isFilter {
			continue
		}
		label, isLabel := strings.CutPrefix(inner, "labels.")
		i := slices.IndexFunc(listFilters, func(f listFilter) bool { return f.name == inner && f.isOf(p.of) })
		switch {
		case closed && isLabel && label != "":
			labels[label] = p.values.Get(key)
		case closed && i >= 0:
			p.strict = p.strict || !listFilters[i].isOlder
			if fault := listFilters[i].parse(p, p.values.Get(key)); fault != "" {
				p.problems.Add(key, "%.300q %s", p.values.Get(key), fault)
			}
		default:
			p.problems.Add(key, "is not a filter of this list; use %s", filtersOf(p.of))
		}
	}
	if len(labels) > 0 {
		p.keepWhere(func(o resource.Any) bool { return kind.Subset(labels, o.Envelope().Labels) })
	}
}

// filtersOf returns the filters of a list, as an error names them.
func filtersOf(c *listing) string {
	names := []string{"filter[labels.NAME]=VALUE"}
	for i := range listFilters {
		if f := &listFilters[i]; f.isOf(c) {
			names = append(names, "filter["+f.name+"]="+f.want)
		}
	}
	return strings.Join(names, ", ")
}

// readInsights states that a filter reads the insights of proxies.
func (p *queryParser) readInsights() {
	p.proxies = true
	proxy, _ := state.ProxyOf(resource.Key{Kind: p.of.of.Describe().Name})
	p.reads = append(p.reads, proxy.InsightKind())
}

func (p *queryParser) readStatus() {
	p.proxies = true
	p.reads = append(p.reads, p.of.status.reads...)
}

// parseZone reads the zone that a resource belongs to; global has no name.
func (p *queryParser) parseZone(zone string) string {
	p.keep = append(p.keep, func(m *snapshot) func(*listed) bool {
		return func(l *listed) bool { return m.State.Tables.OwnerOf(l.Envelope()).Zone == zone }
	})
	return ""
}

func (p *queryParser) parseStatus(value string) string {
	status, wanted := p.of.status, inspect.Status(strings.ToLower(value))
	if !slices.Contains(status.values, wanted) {
		return fmt.Sprintf("is not a status; there are %s", joined(status.values))
	}
	p.readStatus()
	p.keep = append(p.keep, func(m *snapshot) func(*listed) bool {
		of := status.of(m)
		return func(l *listed) bool { return of(l) == wanted }
	})
	return ""
}

func joined(values []inspect.Status) string {
	var names []string
	for _, value := range values {
		names = append(names, string(value))
	}
	return strings.Join(names, ", ")
}

// parseService reads the name of MeshServices, on global or in their zone: a Dataplane matches that one of them
// selects.
func (p *queryParser) parseService(name string) string {
	p.reads = append(p.reads, kind.Written()...)
	p.keep = append(p.keep, func(m *snapshot) func(*listed) bool {
		selected := m.selectedBy(name)
		return func(l *listed) bool { return selected[l.Key()] }
	})
	return ""
}

// selectedBy returns the Dataplanes that the MeshServices of a name select, in every mesh.
func (m *snapshot) selectedBy(name string) map[resource.Key]bool {
	selected, r := map[resource.Key]bool{}, table.Eval(m.Snapshot)
	for service := range m.State.Tables.Services.RowsAfter(m.Snapshot, "", "") {
		if service.Name != name && kind.OwnerName(&kind.MeshServices.Info, &service.Meta) != name &&
			kind.DisplayNameOf(&service.Meta) != name {
			continue
		}
		for dp := range m.State.Services.SelectedInbounds(r, service) {
			selected[dp.Key()] = true
		}
	}
	return selected
}

// keepInsights adds a filter of the stored insights of proxies; nil: a proxy never connected.
func (p *queryParser) keepInsights(keeps func(*kind.DataplaneInsight) bool) {
	p.readInsights()
	p.keep = append(p.keep, func(m *snapshot) func(*listed) bool {
		r := table.Eval(m.Snapshot)
		return func(l *listed) bool { return keeps(m.storedInsight(r, l)) }
	})
}

// storedInsight returns the insight of a proxy, or nil.
func (m *snapshot) storedInsight(r *table.Reader, l *listed) *kind.DataplaneInsight {
	if l.proxy.Dataplane != nil {
		return l.proxy.Insight()
	}
	proxy, _ := state.ProxyOf(l.Key())
	stored, ok := m.State.Tables.Insight(r, proxy)
	if !ok {
		return nil
	}
	return &stored.Spec
}

// parseVersion reads a version of a program of the latest connection, or the first numbers of it.
func (p *queryParser) parseVersion(wanted string, of func(*kind.ProxyVersion) string) string {
	if wanted == "" {
		return "is no version"
	}
	p.keepInsights(func(i *kind.DataplaneInsight) bool {
		if i == nil || len(i.Subscriptions) == 0 {
			return false
		}
		version := of(i.Subscriptions[len(i.Subscriptions)-1].Version)
		return version == wanted || strings.HasPrefix(version, wanted+".")
	})
	return ""
}

func (p *queryParser) parseCertificate(value string) string {
	if value != "none" {
		return "is not none; proxies by expiry are those of filter[certificate.expiresBefore]"
	}
	p.keepInsights(func(i *kind.DataplaneInsight) bool { return i == nil || i.Certificate == nil })
	return ""
}

func (p *queryParser) parseExpiry(value string) string {
	before, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return "is not a time such as 2026-01-31T10:00:00Z"
	}
	p.keepInsights(func(i *kind.DataplaneInsight) bool {
		return i != nil && i.Certificate != nil && i.Certificate.Expiration.Before(before)
	})
	return ""
}

// parseAddress reads an IP address or a host name: a proxy matches that has it, or whose host name resolves to it here.
func (p *queryParser) parseAddress(value string) string {
	if value == "" {
		return "is no address"
	}
	wanted := normalAddress(value)
	p.reads = append(p.reads, kind.ResolvedNames)
	p.keep = append(p.keep, func(m *snapshot) func(*listed) bool {
		r := table.Eval(m.Snapshot)
		return func(l *listed) bool {
			return slices.ContainsFunc(m.AddressesOf(r, l.Any), func(has string) bool {
				return normalAddress(has) == wanted
			})
		}
	})
	return ""
}

// normalAddress returns the one spelling of an address.
func normalAddress(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(text)
}
