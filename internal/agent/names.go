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

// resolvConf lists the machine's resolvers.
const resolvConf = "/etc/resolv.conf"

// resolves reports whether the agent serves the machine's DNS. The host names of a mesh resolve to virtual IPs, which
// only redirected connections reach; none of a zone proxy of every mesh is redirected.
func (a *agent) resolves() bool {
	if a.DNSPort == 0 || a.ProxyType != DataplaneProxy {
		return false
	}
	return !a.registers() || a.dataplane.Spec.Networking.TransparentProxying != nil
}

// serveNames serves DNS until ctx ends.
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

// keepNames updates the server with the host names from the control plane. Without a control plane, the last ones stay.
func (a *agent) keepNames(ctx context.Context, server *nameserver.Server) error {
	retry := newBackoff()
	for version := ""; ; {
		err := a.receiveNames(ctx, server, &version, retry)
		if ctx.Err() != nil {
			return nil
		}
		if status.Code(err) == codes.Unimplemented { // from a control plane of an older release
			a.namesReceived.store(true)
		}
		a.Log.Debug("the stream of host names is opened again", "reason", reason(err))
		retry.wait(ctx)
	}
}

// receiveNames follows one stream to its end.
func (a *agent) receiveNames(ctx context.Context, server *nameserver.Server, version *string, retry *retry) error {
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
		a.namesReceived.store(true)
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
