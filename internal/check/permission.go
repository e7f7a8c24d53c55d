package check

import (
	"slices"
	"strings"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// calls records what a proxy calls.
func (l *checker) calls(p *proxy.Proxy) {
	for _, out := range p.Outbounds {
		l.callees = append(l.callees, out.Destination.Service)
	}
	l.transparent = p.Group.Transparent
}

// verdict is how a listener of a proxy decides about its callers. A listener without one allows some, or every client.
type verdict struct {
	address string
	port    uint32
	// silent is true where no rule allows a client; otherwise denies cover every allow.
	silent bool
}

// verdictsOf are the values of verdicts.
func (s *Stage) verdictsOf(r *table.Reader, key state.ProxyKey) []verdict {
	of := s.Proxies.Proxy.Get(r, key)
	if of == nil {
		return nil
	}
	var verdicts []verdict
	for i := range of.Listeners {
		at := &of.Listeners[i]
		switch permissions := at.Permissions; {
		case permissions == nil:
		case len(permissions.Allow)+len(permissions.ShadowDeny) == 0:
			verdicts = append(verdicts, verdict{at.Address, at.Port, true})
		case allDenied(permissions):
			verdicts = append(verdicts, verdict{at.Address, at.Port, false})
		}
	}
	return verdicts
}

// callers finds a port whose servers deny all callers. It is an error where an outbound calls the service, and a
// warning where a proxy may reach it at its virtual IP.
func (l *checker) callers(o *resource.Object[kind.MeshService], port kind.ServicePort, members []*service.Member) {
	var silent, denied []string // servers without an allow, and servers whose allows are all denied
	servers := 0
	for _, m := range members {
		if m.Inbound.State != kind.Ready || !service.Targets(port, &m.Inbound) {
			continue
		}
		servers++
		verdicts := l.verdicts.Get(l.r, state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name})
		switch i := slices.IndexFunc(verdicts, func(v verdict) bool {
			return v.address == m.Inbound.Address && v.port == m.Inbound.Port
		}); {
		case i < 0:
		case verdicts[i].silent:
			silent = append(silent, m.Dataplane.Name)
		default:
			denied = append(denied, m.Dataplane.Name)
		}
	}
	object := objectOf(o.Key())
	if len(silent) > 0 {
		l.found(noAllowedClients, object, "port %d: no rule allows a client to call %s (%d of %d)", port.Port,
			someOf(silent), len(silent), servers).callee = o.Name
	}
	if len(denied) > 0 {
		l.found(denyCoversAllow, object, "port %d: every allowed caller of %s is denied by another rule (%d of %d)",
			port.Port, someOf(denied), len(denied), servers).callee = o.Name
	}
}

// allDenied reports whether denies cover all allows. A rule that is allowed with a shadow deny counts as an allow.
func allDenied(p *match.Permissions) bool {
	for _, allow := range slices.Concat(p.Allow, p.ShadowDeny) {
		if !slices.ContainsFunc(p.Deny, func(deny match.Rule) bool { return deny.Covers(allow.IDPattern) }) {
			return false
		}
	}
	return true
}

// callerDomains finds callers of a permission with a trust domain that no proxy of the mesh trusts. A mesh without a
// trust domain uses plaintext.
func (l *checker) callerDomains(policy *resource.Object[kind.MeshTrafficPermission]) {
	trusted := l.trusted(l.r, policy.Mesh)
	if len(trusted) == 0 {
		return
	}
	var strangers []string
	for _, rule := range policy.Spec.Rules {
		for _, caller := range slices.Concat(rule.Default.Allow, rule.Default.AllowWithShadowDeny, rule.Default.Deny) {
			if caller.SpiffeID == nil {
				continue // an entry with only an SNI applies to every trusted caller
			}
			domain := domainOf(caller.SpiffeID.Value)
			if !slices.Contains(trusted, domain) && !slices.Contains(strangers, domain) {
				strangers = append(strangers, domain)
			}
		}
	}
	if len(strangers) > 0 {
		l.add(domainNotTrusted, Warning, objectOf(policy.Key()), "it matches callers of %s, and the mesh trusts %s",
			someOf(strangers), someOf(trusted)).cause = someOf(strangers)
	}
}

func domainOf(spiffeID string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(spiffeID, "spiffe://"), "/")
	return domain
}
