package graphtest

import (
	stdcmp "cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneroute"
)

// RunWorlds tests each world in the testdata of a package: resources as users write them, what the proxies serve, and
// what the mesh then means. A file that is dropped there is a new test.
func RunWorlds(t *testing.T) {
	t.Helper()
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		golden.Set(archive, "meaning", meaning(t, archive))
	})
}

// meaning writes down what a world means, one line a fact.
func meaning(t *testing.T, archive *txtar.Archive) string {
	s := Load(t, archive)
	var b strings.Builder
	r := table.Eval(s.Tables.DB.Snapshot())
	for dp := range s.Tables.Dataplanes.All(s.Tables.DB.Snapshot()) {
		describeProxy(&b, s, r, s.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}))
	}
	zp := s.ZoneProxies
	for _, route := range slices.Concat(zp.SNIRoutes.Get(r, "default"), zp.CrossZoneSNIRoutes.Get(r, "default")) {
		fmt.Fprintf(&b, "SNI route %s to %s%s\n", route.SNI, route.Destination,
			map[bool]string{true: " cross-zone"}[route.CrossZone])
		for _, e := range s.ZoneProxies.SNIRouteBackends(r, route) {
			fmt.Fprintf(&b, "  served by %s at %s:%d\n", stdcmp.Or(e.Proxy.Name, "the ingress of "+e.Zone), e.Address,
				e.Port)
		}
	}
	services := s.Services.Destinations.Get(r, "default")
	slices.SortFunc(services, service.CompareDestinations)
	for _, service := range services {
		for _, port := range s.Services.Ports.Get(r, service) {
			describeDestination(&b, s, r, service.WithPort(port))
		}
	}
	return b.String()
}

func describeOtherIDs(rule match.Rule) string {
	if len(rule.OtherIDs) == 0 {
		return ""
	}
	return fmt.Sprintf(" and %v", rule.OtherIDs)
}

func describeProxy(b *strings.Builder, s *graph.State, r *table.Reader, p *proxy.Proxy) {
	fmt.Fprintf(b, "proxy %s\n", p.Key)
	if id := p.Identity; id != nil {
		fmt.Fprintf(b, "  is %s by %s %s\n", strings.Join(id.List(), " and "), id.MeshIdentity, id.Problem)
	} else {
		fmt.Fprintf(b, "  is plain\n")
	}
	if cert := p.Certificate; cert != nil && (!cert.Equal(p.Identity.SpiffeIDs) || cert.Authority != "") {
		fmt.Fprintf(b, "  its next certificate is %s by %s %s\n", strings.Join(cert.List(), " and "), cert.MeshIdentity,
			cert.Authority)
	}
	for _, l := range p.Listeners {
		fmt.Fprintf(b, "  listens on %s:%d (%s) section %s for %s:%d\n", l.Address, l.Port, l.Protocol, l.Section,
			l.ServiceAddress, l.ServicePort)
		if l.AlsoPlaintext {
			fmt.Fprintf(b, "    takes plain connections too\n")
		}
		if l.Permissions != nil {
			for _, rule := range l.Permissions.Deny {
				fmt.Fprintf(b, "    denies %s%s%s by %s\n", rule.Exact, rule.Prefix, describeOtherIDs(rule),
					rule.Origin)
			}
			for _, rule := range l.Permissions.Allow {
				fmt.Fprintf(b, "    allows %s%s%s by %s\n", rule.Exact, rule.Prefix, describeOtherIDs(rule),
					rule.Origin)
			}
		}
	}
	for _, l := range p.Ingresses {
		fmt.Fprintf(b, "  is an ingress of %v at %s:%d\n", p.Passes, l.Address, l.Port)
	}
	for _, o := range p.Outbounds {
		fmt.Fprintf(b, "  reaches %s (%s) at %s:%d\n", o.Destination, o.Protocol, o.Address, o.Port)
	}
	fmt.Fprintf(b, "  proxy group reaches %v\n", s.Proxies.Reached.Get(r, p.Group.ReachKey()))
	if gone := s.Proxies.Draining.Get(r, p.Key); len(gone) > 0 {
		fmt.Fprintf(b, "  is draining %v\n", gone)
	}
}

func describeDestination(b *strings.Builder, s *graph.State, r *table.Reader, key service.DestinationKey) {
	d := s.Services.DestinationOf(r, key)
	fmt.Fprintf(b, "destination %s (%s) at %v\n", key, d.Protocol, d.VIPs)
	if key.Kind != service.MultiZoneService {
		describeServers(b, "servers", &d.Servers)
	}
	if d.Local != nil {
		describeServers(b, "servers here", d.Local)
	}
	for i := range d.Zones {
		describeServers(b, "servers", &d.Zones[i])
	}
	for _, secured := range []bool{true, false} {
		if reason := d.UnreachableReason(secured); reason != "" {
			fmt.Fprintf(b, "  unreachable for secured=%v: %s\n", secured, reason)
		}
	}
	for _, list := range d.Lists(true) {
		for _, e := range s.Services.EndpointsOfList(r, list).Endpoints {
			fmt.Fprintf(b, "  served by %s at %s:%d\n", stdcmp.Or(e.Proxy.Name, "the ingress of "+e.Zone), e.Address,
				e.Port)
		}
	}
	switch key.Kind {
	case service.MultiZoneService:
		describeSelected(b, s, r, key)
		return
	case service.ExternalService:
		return
	}
	backing := inspect.NewReports(s, s.Tables.DB.Snapshot()).BackingOf(s.Services.Row(key),
		inspect.CallersPage{})
	for _, server := range backing.Servers {
		if server.Port == key.Port && server.Status != inspect.EndpointPublished {
			fmt.Fprintf(b, "  not by %s at %s: %s\n", server.Dataplane, server.Address, server.Status)
		}
	}
	fmt.Fprintf(b, "  called by %v and %d more\n", backing.Callers, backing.Transparent)
}

func describeServers(b *strings.Builder, who string, servers *service.Servers) {
	if servers.Way != zoneroute.Direct {
		who += " " + fmt.Sprintf("in %s by %s", stdcmp.Or(servers.Zone, "no zone"), servers.Way)
		fmt.Fprintf(b, "  %s have the SNI %q\n", who, servers.SNI)
	}
	for _, id := range servers.Identities {
		fmt.Fprintf(b, "  %s are %s\n", who, id)
	}
	if servers.TrustDomain != "" {
		trusted := stdcmp.Or(servers.UntrustedReason(), "trusted as of "+servers.TrustDomain)
		fmt.Fprintf(b, "  %s are %s\n", who, strings.Replace(trusted, "its servers are ", "not trusted: ", 1))
	}
}

func describeSelected(b *strings.Builder, s *graph.State, r *table.Reader, key service.DestinationKey) {
	service, _ := s.Tables.MultiZoneServices.Find(r, key.Mesh, key.Service)
	for _, port := range service.Spec.Ports {
		for _, selected := range s.Services.SelectedServices(r, service, port) {
			if port.Port == key.Port {
				fmt.Fprintf(b, "  selects %s %s\n", selected.Service, selected.Excluded)
			}
		}
	}
}
