package main

import (
	"context"

	"weft/internal/admit"
	"weft/internal/agent/nameserver"
	"weft/internal/lookup"
	"weft/kind"
	"weft/resource"
)

// lookUpNames makes the part that resolves the host names that resources of a zone have as addresses.
func (p *plane) lookUpNames() *lookup.Runner {
	names := nameserver.NewLookup(nameserver.ExternalConfig{
		Resolvers: p.settings.Resolvers, ResolvConf: "/etc/resolv.conf", Hosts: "/etc/hosts", Log: p.log,
	})
	return lookup.New(lookup.Config{
		State: p.state, Writer: resolvedNames{p.writer}, Find: names.Addresses, Drain: p.settings.HostNameDrain, Log: p.log,
	})
}

// resolvedNames are the rows of host names.
type resolvedNames struct{ writer *admit.Writer }

func (w resolvedNames) Modify(ctx context.Context, name string, change func(*kind.ResolvedName) bool) error {
	return unlessGone(admit.Modify(ctx, w.writer, kind.ResolvedNames, "", name, func(o *resource.Object[kind.ResolvedName]) bool {
		return change(&o.Spec)
	}))
}

func (w resolvedNames) Delete(ctx context.Context, name string) error {
	return unlessGone(w.writer.Delete(ctx, kind.ResolvedNames.Key("", name), admit.Change{ControlPlane: true}))
}
