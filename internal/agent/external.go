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

// hostsFile has the host names of the machine.
const hostsFile = "/etc/hosts"

// hasZoneEgress reports whether the proxy is a zone egress. The control plane tells that of a Pod, before Envoy starts.
func (a *agent) hasZoneEgress() bool {
	settings, _ := a.settings.load()
	return a.ProxyType == EgressProxy || a.dataplane.Spec.Networking.ZoneEgress != nil || settings.GetZoneEgress()
}

// serveExternal resolves host names of external services for the Envoy of a zone egress, until ctx ends. It excludes
// addresses of the machine, of its link and of a cloud's metadata service, unless the control plane's settings allow
// them. Envoy has no other resolver.
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

// localNetworks returns the networks that the control plane's settings allow. Invalid networks are ignored.
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

// externalResolver returns the configuration of Envoy's resolver, which sends all queries to the agent.
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
