package agent

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/agent/nameserver"
	"weft/internal/wire"
)

// resolvConf says whom the machine asks for names.
const resolvConf = "/etc/resolv.conf"

// resolves says whether the agent answers the machine's DNS. Names lead to virtual IPs, which only redirected
// connections reach.
func (a *agent) resolves() bool {
	return a.DNSPort != 0 && a.dataplane.Spec.Networking.TransparentProxying != nil
}

// serveNames answers DNS for as long as the agent runs.
func (a *agent) serveNames(ctx context.Context, parts *errgroup.Group) error {
	if !a.resolves() {
		return nil
	}
	server := nameserver.New(nameserver.Config{Port: a.DNSPort, Resolvers: a.DNSResolvers, ResolvConf: resolvConf,
		Log: a.Log})
	if err := server.Listen(); err != nil {
		return fmt.Errorf("the port for DNS: %w; choose another with --dns-port, or 0 for none", err)
	}
	parts.Go(func() error { return server.Serve(ctx) })
	parts.Go(func() error { return a.keepNames(ctx, server) })
	return nil
}

// keepNames has the server know the names that the control plane tells. While that is away, the last ones hold.
func (a *agent) keepNames(ctx context.Context, server *nameserver.Server) error {
	retry := newBackoff()
	for version := ""; ; {
		err := a.hearNames(ctx, server, &version, retry)
		if ctx.Err() != nil {
			return nil
		}
		if status.Code(err) == codes.Unimplemented { // by a control plane of an older release
			a.named.store(true)
		}
		a.Log.Debug("the host names are asked for again", "reason", reason(err))
		retry.wait(ctx)
	}
}

// hearNames follows one stream to its end.
func (a *agent) hearNames(ctx context.Context, server *nameserver.Server, version *string, retry *retry) error {
	stream, err := a.control.agent.HostNames(ctx, &wire.HostNamesRequest{ProxyType: string(a.ProxyType), Mesh: a.mesh,
		Name: a.name, Version: *version})
	if err != nil {
		return err
	}
	for {
		update, err := stream.Recv()
		if err != nil {
			return err
		}
		retry.reset()
		if update.Complete {
			server.Replace(hostNames(update.Changed))
		} else {
			server.Change(hostNames(update.Changed), update.Removed)
		}
		*version = update.Version
		a.named.store(true)
	}
}

func hostNames(told []*wire.HostName) []nameserver.Name {
	names := make([]nameserver.Name, 0, len(told))
	for _, host := range told {
		name := nameserver.Name{Host: host.Name}
		for _, raw := range host.Addresses {
			if address, ok := netip.AddrFromSlice(raw); ok {
				name.Addresses = append(name.Addresses, address)
			}
		}
		names = append(names, name)
	}
	return names
}
