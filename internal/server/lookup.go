package server

import (
	"context"

	"weft/internal/admission"
	"weft/internal/agent/nameserver"
	"weft/internal/lookup"
	"weft/kind"
	"weft/resource"
)

// hostNames makes the runner that resolves the host names in address fields of a zone's resources.
func (s *Server) hostNames() *lookup.Runner {
	names := nameserver.NewLookup(nameserver.ExternalConfig{
		Resolvers: s.settings.Resolvers, ResolvConf: "/etc/resolv.conf", Hosts: "/etc/hosts", Log: s.log,
	})
	return lookup.New(lookup.Config{
		State: s.state, Writer: resolvedNames{s.writer}, Find: names.Addresses, Drain: s.settings.HostNameDrain,
		Log: s.log,
	})
}

// resolvedNames writes the rows of host names.
type resolvedNames struct{ writer *admission.Writer }

func (w resolvedNames) Modify(ctx context.Context, name string, change func(*kind.ResolvedName) bool) error {
	return ignoreSuperseded(admission.Modify(ctx, w.writer, kind.ResolvedNames, "", name,
		func(o *resource.Object[kind.ResolvedName]) bool {
			return change(&o.Spec)
		}))
}

func (w resolvedNames) Delete(ctx context.Context, name string) error {
	return ignoreSuperseded(w.writer.Delete(ctx, kind.ResolvedNames.Key("", name),
		admission.Change{ControlPlane: true}))
}
