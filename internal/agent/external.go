package agent

import (
	"context"
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/agent/nameserver"
	"weft/kind"
)

// hostsFile has the machine's own names.
const hostsFile = "/etc/hosts"

// hasZoneEgress says whether the proxy connects clients to external services.
func (a *agent) hasZoneEgress() bool {
	return a.ProxyType == EgressProxy || a.dataplane.Spec.Networking.ZoneEgress != nil
}

// serveExternal resolves the names of servers outside the mesh for the Envoy of a zone egress, for as long as the agent
// runs. Addresses of the machine itself, of its link and of a cloud's metadata are left out, but for those that the
// control plane's settings allow. Envoy has no other resolver.
func (a *agent) serveExternal(ctx context.Context, parts *errgroup.Group) error {
	if !a.hasZoneEgress() {
		return nil
	}
	server := nameserver.NewExternal(nameserver.ExternalConfig{
		Suffix:    kind.ExternalSuffix,
		Resolvers: a.DNSResolvers, ResolvConf: resolvConf, Hosts: hostsFile, Log: a.Log,
		Local: func(address netip.Addr) string { return kind.LocalAddress(address, a.localNetworks()) },
	})
	at, err := server.Listen()
	if err != nil {
		return fmt.Errorf("the port for the names of external services: %w", err)
	}
	a.externalDNS = at
	parts.Go(func() error { return server.Serve(ctx) })
	return nil
}

// localNetworks are those that the control plane's settings allow; what can't be read allows nothing.
func (a *agent) localNetworks() []netip.Prefix {
	settings, _ := a.settings.load()
	var networks []netip.Prefix
	for _, text := range settings.GetLocalNetworks() {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, prefix)
		}
	}
	return networks
}

// externalResolver has Envoy ask the agent alone.
func externalResolver(at netip.AddrPort) (*corev3.TypedExtensionConfig, error) {
	config, err := anypb.New(&caresv3.CaresDnsResolverConfig{
		Resolvers: []*corev3.Address{{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: at.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
		}}}},
		DnsResolverOptions: &corev3.DnsResolverOptions{NoDefaultSearchDomain: true},
	})
	if err != nil {
		return nil, err
	}
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: config}, nil
}
