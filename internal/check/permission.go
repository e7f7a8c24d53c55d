package check

import (
	"slices"
	"strings"

	"weft/internal/match"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// calls are the services of a mesh and their clients.
type calls struct {
	named       map[string]bool // services of outbounds
	transparent bool            // whether a client may reach services at their virtual IPs
}

func callsOf(members []member) calls {
	c := calls{named: map[string]bool{}}
	for _, m := range members {
		for _, out := range m.proxy.Outbounds {
			c.named[out.Destination.Service] = true
		}
		c.transparent = c.transparent || m.proxy.Group.Transparent
	}
	return c
}

// severity returns the severity of a service that denies all callers, or false without a caller.
func (c calls) severity(service string) (Severity, bool) {
	switch {
	case c.named[service]:
		return Error, true
	case c.transparent:
		return Warning, true
	}
	return "", false
}

// callers finds a port whose servers deny all callers.
func (l *checker) callers(meshService *resource.Object[kind.MeshService], port kind.ServicePort,
	members []*service.Member,
	calls calls) {
	severity, tried := calls.severity(meshService.Name)
	if !tried {
		return
	}
	object := objectOf(meshService.Key())
	var silent, denied []string // servers without an allow, and servers whose allows are all denied
	servers := 0
	for _, m := range members {
		if m.Inbound.State != kind.Ready || !service.Targets(port, &m.Inbound) {
			continue
		}
		servers++
		permissions := l.permissionsAt(m)
		switch {
		case permissions == nil:
		case len(permissions.Allow)+len(permissions.ShadowDeny) == 0:
			silent = append(silent, m.Dataplane.Name)
		case allDenied(permissions):
			denied = append(denied, m.Dataplane.Name)
		}
	}
	if len(silent) > 0 {
		l.add(noAllowedClients, severity, object, "port %d: no rule allows a client to call %s (%d of %d)", port.Port,
			someOf(silent), len(silent), servers)
	}
	if len(denied) > 0 {
		l.add(denyCoversAllow, severity, object,
			"port %d: every allowed caller of %s is denied by another rule (%d of %d)", port.Port, someOf(denied),
			len(denied), servers)
	}
}

// permissionsAt returns the permissions of a member's listener, or nil where its proxy allows every client.
func (l *checker) permissionsAt(m *service.Member) *match.Permissions {
	proxy := l.State.Proxies.Proxy.Get(l.r, state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name})
	for i := range proxy.Listeners {
		if at := &proxy.Listeners[i]; at.Address == m.Inbound.Address && at.Port == m.Inbound.Port {
			return at.Permissions
		}
	}
	return nil
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

// callerDomains finds callers of a trust domain whose certificates no proxy of the mesh trusts.
func (l *checker) callerDomains(mesh string) {
	trusted := l.trusted(mesh)
	if len(trusted) == 0 {
		return // a mesh without a trust domain uses plaintext
	}
	rows := l.State.Tables.PolicyRows[kind.MeshTrafficPermissions.Name]
	for _, permission := range rows.ByMesh.List(l.r, state.MeshKey(mesh)) {
		l.strangers(permission.(*resource.Object[kind.MeshTrafficPermission]), trusted)
	}
}

// strangers finds callers of a permission whose trust domain is not trusted.
func (l *checker) strangers(policy *resource.Object[kind.MeshTrafficPermission], trusted []string) {
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
			someOf(strangers), someOf(trusted))
	}
}

// trusted returns the trust domains of a mesh.
func (l *checker) trusted(mesh string) []string {
	var domains []string
	for _, d := range l.State.Identity.Trust.Get(l.r, mesh).Domains {
		domains = append(domains, d.Name)
	}
	return domains
}

func domainOf(spiffeID string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(spiffeID, "spiffe://"), "/")
	return domain
}
