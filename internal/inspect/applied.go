package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// Applied lists the resources that configure a proxy, and their effect, as the API shows it. It is computed by the same
// functions as the configuration. A section that is not requested is absent.
type Applied struct {
	Identity AppliedIdentity `json:"identity,omitzero"`
	// Facts are the facts of the Dataplane, at most [MaxFacts]; MoreFacts is the number of the others.
	Facts     []AppliedFact    `json:"facts,omitzero"`
	MoreFacts int              `json:"moreFacts,omitempty"`
	Trusts    []AppliedTrust   `json:"trusts,omitzero"` // the MeshTrusts of its mesh; a plaintext proxy uses none
	Inbounds  []AppliedInbound `json:"inbounds,omitzero"`
	// ZoneProxy are the sections of a zone proxy with the policies about the connections that they receive.
	ZoneProxy []AppliedSection  `json:"zoneProxy,omitempty"`
	Outbounds []AppliedOutbound `json:"outbounds,omitzero"`
	// WholeProxy are the effective confs of the policies about the proxy as a whole, by kind.
	WholeProxy []AppliedConf `json:"wholeProxy,omitempty"`
	// LeftOut are the policies that target the proxy, and that it is without.
	LeftOut []AppliedLeftOut `json:"leftOut,omitempty"`
}

// AppliedIdentity is the MeshIdentity of a proxy, and the reason for its choice.
type AppliedIdentity struct {
	// MeshIdentity is its name, or "mesh.mtls" for the mtls of the mesh; empty: the proxy is plaintext.
	MeshIdentity string `json:"meshIdentity,omitempty"`
	// SpiffeIDs are the ones that the proxy is to have; under the mtls of a mesh one for each of its services.
	kind.SpiffeIDs
	TrustDomain string `json:"trustDomain,omitempty"`
	// SpireSocket is the SPIRE agent's socket that issues its certificate; empty: the control plane signs it.
	SpireSocket string `json:"spireSocket,omitempty"`
	Reason      string `json:"reason"`
	// Problem is why the proxy can't present the identity; empty: it can.
	Problem string `json:"problem,omitempty"`
	// Selecting are all MeshIdentities that select the proxy, the chosen one first.
	Selecting []string `json:"selecting"`
}

// AppliedTrust is a MeshTrust whose roots the proxies of the mesh trust.
type AppliedTrust struct {
	MeshTrust   string `json:"meshTrust"`
	TrustDomain string `json:"trustDomain"`
	Bundles     int    `json:"bundles"`
}

// AppliedInbound shows the allowed callers of one listener.
type AppliedInbound struct {
	Address  string        `json:"address"`
	Port     uint32        `json:"port"`
	Section  string        `json:"section"` // the inbounds' names, joined with "+"
	Protocol kind.Protocol `json:"protocol"`
	// Policies are the policies that apply, as "MeshTrafficPermission default/web", in the order in which they are
	// joined.
	Policies []string `json:"policies"`
	// Rules are the joined rules; absent where the proxy is plaintext and allows every caller.
	Rules *AppliedRules `json:"rules,omitempty"`
	// Default is the effect on a caller that no rule matches.
	Default string `json:"default"`
	// Confs are the effective confs of the policies about the callers, by kind and match, the most specific match
	// first.
	Confs []AppliedCallers `json:"confs,omitempty"`
	// Warnings are the confs, or fields of them, that have no effect here.
	Warnings []string `json:"warnings,omitempty"`
}

// AppliedRules are joined rules: the first list that matches a caller decides.
type AppliedRules struct {
	Deny                []AppliedRule `json:"deny"`
	AllowWithShadowDeny []AppliedRule `json:"allowWithShadowDeny"`
	Allow               []AppliedRule `json:"allow"`
}

// AppliedRule is one rule about callers.
type AppliedRule struct {
	Origin   string       `json:"origin"` // "MeshTrafficPermission default/web rules[0].default.allow[1]"
	SpiffeID kind.IDMatch `json:"spiffeID"`
	// Also are further SPIFFE IDs that it matches, of workloads that are changing theirs.
	Also []string `json:"also,omitempty"`
}

// AppliedOutbound shows the route to one destination.
type AppliedOutbound struct {
	Destination string `json:"destination"` // its name in Envoy's configuration
	// MeshService, MultiZoneService or ExternalService is the name that its owner gave it. Zone is the zone of a
	// MeshService of a remote zone.
	MeshService      string        `json:"meshService,omitempty"`
	MultiZoneService string        `json:"meshMultiZoneService,omitempty"`
	ExternalService  string        `json:"meshExternalService,omitempty"`
	Zone             string        `json:"zone,omitempty"`
	Port             uint32        `json:"port"`
	Protocol         kind.Protocol `json:"protocol"`
	// Addresses are the addresses at which the proxy's application reaches it.
	Addresses []string `json:"addresses"`
	MutualTLS bool     `json:"mutualTLS"`
	// Identities are the SPIFFE IDs that the proxy accepts from its servers, with mutual TLS.
	Identities []string `json:"identities,omitempty"`
	// TrustDomain is the only trust domain whose roots validate its servers; empty: every one that the mesh trusts.
	TrustDomain string `json:"trustDomain,omitempty"`
	// Unreachable is why the proxy can't reach it; absent where it can.
	Unreachable string `json:"unreachable,omitempty"`
	// Confs are the effective confs of the policies about it, by kind. A field that they lack has its default.
	Confs []AppliedConf `json:"confs,omitempty"`
	// Route is the route of its traffic; absent where no policy routes it.
	Route *AppliedRouting `json:"route,omitempty"`
}

// AppliedConf is the effective conf of one kind of policies.
type AppliedConf struct {
	Kind string `json:"kind"`
	Conf any    `json:"conf"`
	// Origins are the items that the fields are from, by the path of the field: "http.requestTimeout".
	Origins map[string]AppliedItem `json:"origins"`
	// Items are the merged items in ascending order: a later one overrides.
	Items []AppliedItem `json:"items"`
	// Notes are the parts of the conf without effect on the destination.
	Notes []string `json:"notes,omitempty"`

	merged policy.Merged
	list   string // of the items
}

// fieldWarnings returns a warning for each field of the conf that has no effect for a reason, sorted.
func (c *AppliedConf) fieldWarnings(reason func(path policy.Path) string) []string {
	var warnings []string
	for path, origin := range c.merged.Origins.All() {
		if why := reason(path); why != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s has no effect: %s (%s)", c.Kind, path, why,
				origin.Item(c.list)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// AppliedItem is an item of a policy.
type AppliedItem struct {
	Policy string `json:"policy"` // "MeshTimeout default/web"
	Item   string `json:"item"`   // "to[0]", "rules[0]" or "default"
	Index  int    `json:"-"`      // of the item
}

// String reads as "MeshTimeout default/web to[0]".
func (i AppliedItem) String() string { return i.Policy + " " + i.Item }

// reportedProxy is a proxy whose report is computed.
type reportedProxy struct {
	*proxy.Proxy
	dataplane *resource.Object[kind.Dataplane]
}

// appliedSections are the sections of [Applied], each with the name of its field and with what computes it.
var appliedSections = []struct {
	name string
	add  func(*Reports, *Applied, reportedProxy)
}{
	{"identity", func(rs *Reports, a *Applied, p reportedProxy) { a.Identity = rs.appliedIdentity(p.dataplane) }},
	{"facts", func(rs *Reports, a *Applied, p reportedProxy) { a.Facts, a.MoreFacts = rs.facts(p.dataplane) }},
	{"trusts", func(rs *Reports, a *Applied, p reportedProxy) { a.Trusts = rs.appliedTrusts(p.Key.Mesh) }},
	{"inbounds", func(rs *Reports, a *Applied, p reportedProxy) { a.Inbounds = rs.appliedInbounds(p.Proxy) }},
	{"zoneProxy", func(rs *Reports, a *Applied, p reportedProxy) { a.ZoneProxy = rs.appliedSections(p.Proxy) }},
	{"outbounds", func(rs *Reports, a *Applied, p reportedProxy) { a.Outbounds = rs.appliedOutbounds(p.Proxy) }},
	{"wholeProxy", func(rs *Reports, a *Applied, p reportedProxy) { a.WholeProxy = rs.appliedWhole(p.Proxy) }},
	{"leftOut", func(rs *Reports, a *Applied, p reportedProxy) { a.LeftOut = rs.leftOut(p.Key) }},
}

// AppliedSections returns the names of the sections of [Applied].
func AppliedSections() []string {
	var names []string
	for _, section := range appliedSections {
		names = append(names, section.name)
	}
	return names
}

// AppliedConfs returns the named sections about the resources that configure a proxy, all without names; nil where
// there is no such Dataplane.
func (rs *Reports) AppliedConfs(key state.ProxyKey, sections ...string) *Applied {
	dp, ok := rs.State.Tables.Dataplanes.Find(rs.r, key.Mesh, key.Name)
	p := rs.State.Proxies.Proxy.Get(rs.r, key)
	if !ok || p == nil {
		return nil
	}
	a := &Applied{}
	for _, section := range appliedSections {
		if len(sections) == 0 || slices.Contains(sections, section.name) {
			section.add(rs, a, reportedProxy{p, dp})
		}
	}
	return a
}

func (rs *Reports) appliedTrusts(mesh string) []AppliedTrust {
	trusts := []AppliedTrust{}
	for _, t := range rs.State.Tables.TrustsByMesh.List(rs.r, state.MeshKey(mesh)) {
		trusts = append(trusts, AppliedTrust{t.Name, t.Spec.TrustDomain, len(t.Spec.CABundles)})
	}
	return trusts
}

func (rs *Reports) appliedInbounds(p *proxy.Proxy) []AppliedInbound {
	inbounds := []AppliedInbound{}
	for i := range p.Listeners {
		inbounds = append(inbounds, rs.appliedInbound(p.Key, &p.Listeners[i]))
	}
	return inbounds
}

// appliedOutbounds returns the destinations that a proxy reaches, with the policies about its traffic to them.
func (rs *Reports) appliedOutbounds(p *proxy.Proxy) []AppliedOutbound {
	outbounds := []AppliedOutbound{}
	for _, destination := range rs.State.Proxies.Reached.Get(rs.r, p.Group.ReachKey()) {
		d := rs.State.Services.DestinationOf(rs.r, destination)
		if d == nil {
			continue
		}
		d = d.WithConfs(service.EffectiveOf(rs.State.Proxies.ConfsOf(rs.r, p.Group.Policies, destination)))
		out := appliedOutbound(p, d)
		key := proxy.EffectiveKey{Policies: p.Group.Policies, Destination: destination}
		out.Route = rs.appliedRouting(key)
		out.Confs = appliedConfs(rs.State.Proxies.MergedConfs(rs.r, key), "to")
		for i := range out.Confs {
			out.Confs[i].Notes = append(out.Confs[i].Notes, rs.notesAbout(out.Confs[i].Conf, d, p.Identity != nil)...)
		}
		outbounds = append(outbounds, out)
	}
	return outbounds
}

func (rs *Reports) appliedIdentity(dp *resource.Object[kind.Dataplane]) AppliedIdentity {
	a := AppliedIdentity{Selecting: []string{}}
	selecting := rs.State.Identity.SelectingIdentities(rs.r, dp)
	for _, o := range selecting {
		a.Selecting = append(a.Selecting, o.Name)
	}
	switch {
	case len(selecting) == 0 && rs.State.Identity.MTLS.Get(rs.r, dp.Mesh).Enabled:
		a.Reason = "no MeshIdentity selects the Dataplane, so the mtls of the mesh gives the identity"
	case len(selecting) == 0:
		a.Reason = "no MeshIdentity selects the Dataplane and the mesh has no mtls, so the proxy is plaintext"
	case len(selecting) == 1:
		a.Reason = "it is the only one that selects the Dataplane"
	case identity.SelectorLabels(selecting[0]) > identity.SelectorLabels(selecting[1]):
		a.Reason = fmt.Sprintf("of the %d that select the Dataplane, it has the most labels in its selector (%d)",
			len(selecting), identity.SelectorLabels(selecting[0]))
	default:
		a.Reason =
			fmt.Sprintf("of those that select the Dataplane with the most labels (%d), it is the first by name",
				identity.SelectorLabels(selecting[0]))
	}
	if id := rs.State.Identity.Identity.Get(rs.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}); id != nil {
		a.MeshIdentity, a.SpiffeIDs, a.TrustDomain, a.Problem = id.MeshIdentity, id.SpiffeIDs, id.TrustDomain,
			id.Problem
		a.SpireSocket = id.Source.Socket
	}
	return a
}

func (rs *Reports) appliedInbound(key state.ProxyKey, l *proxy.InboundListener) AppliedInbound {
	policies := rs.State.Proxies.PermissionsOf(rs.r, key.Mesh, key, l.Section)
	a := AppliedInbound{
		Address: l.Address, Port: l.Port, Section: l.Section, Protocol: l.Protocol, Policies: []string{},
		Default: "all callers are allowed: the proxy has no identity, so permissions have no effect",
	}
	for _, o := range policies {
		a.Policies = append(a.Policies, o.Key().String())
	}
	if rules := l.Permissions; rules != nil {
		a.Rules = &AppliedRules{appliedRules(rules.Deny), appliedRules(rules.ShadowDeny), appliedRules(rules.Allow)}
		a.Default = deniesUnmatched
	}
	a.Confs = rs.appliedCallers(proxy.PlaceOf(key, key.Mesh, l.Section, nil))
	a.Warnings = inboundWarnings(l, a.Confs)
	return a
}

// deniesUnmatched is the effect on a caller that no rule matches, where there are rules.
const deniesUnmatched = "callers that no rule matches are denied"

func appliedRules(rules []match.Rule) []AppliedRule {
	applied := []AppliedRule{}
	for _, rule := range rules {
		applied = append(applied, AppliedRule{rule.Origin, *rule.Match(), rule.OtherIDs})
	}
	return applied
}

func appliedConfs(merged map[string]policy.Merged, list string) []AppliedConf {
	var confs []AppliedConf
	for _, of := range slices.Sorted(maps.Keys(merged)) {
		confs = append(confs, appliedConf(of, merged[of], list))
	}
	return confs
}

// appliedWhole returns the effective confs about a proxy as a whole.
func (rs *Reports) appliedWhole(p *proxy.Proxy) []AppliedConf {
	confs := appliedConfs(rs.State.Proxies.MergedWhole(rs.r, proxy.WholeOf(p.Key)), policy.DefaultPart)
	for i := range confs {
		of, at := kind.ByName(confs[i].Kind).(kind.Policy), kind.Place{Transparent: p.Capture != nil, Secured: true}
		if reason := of.NoEffectReason(confs[i].Conf, "", &at); reason != "" {
			confs[i].Notes = append(confs[i].Notes, "has no effect: "+reason)
		}
		if confs[i].Kind == kind.MeshProxyPatches.Name {
			confs[i].Notes = append(confs[i].Notes, rs.modificationNotes(p.Key)...)
		}
	}
	return confs
}

// appliedConf returns the effective conf of a kind, which is merged from parts: to, rules or default.
func appliedConf(of string, m policy.Merged, list string) AppliedConf {
	item := func(origin policy.Origin) AppliedItem { return itemOf(origin, list) }
	a := AppliedConf{Kind: of, Conf: m.Conf, Origins: map[string]AppliedItem{}, merged: m, list: list}
	for path, origin := range m.Origins.All() {
		a.Origins[path.String()] = item(origin)
	}
	for _, origin := range m.Parts {
		a.Items = append(a.Items, item(origin))
	}
	for _, rejected := range m.Rejected {
		a.Notes = append(a.Notes, fmt.Sprintf("%s has no effect: %s", item(rejected.Origin), rejected.Reason))
	}
	return a
}

// itemOf returns an item of a policy: of the list to or rules, or the default.
func itemOf(origin policy.Origin, list string) AppliedItem {
	return AppliedItem{origin.Policy.String(), origin.PartName(list), origin.Part}
}

// untrustedReason returns why no server of a destination is accepted; empty: some are.
func untrustedReason(d *service.Destination) (reason string) {
	for _, servers := range d.AllServers() {
		if reason = servers.UntrustedReason(); reason == "" {
			return ""
		}
	}
	return reason
}

func appliedOutbound(p *proxy.Proxy, d *service.Destination) AppliedOutbound {
	secured := p.Identity != nil
	a := AppliedOutbound{
		Destination: d.Key.String(), Zone: d.Servers.Zone, Port: d.Key.Port,
		Protocol: d.Protocol, Addresses: []string{}, Unreachable: d.UnreachableReason(secured),
	}
	switch d.Key.Kind {
	case service.MeshService:
		a.MeshService = d.Key.Service
	case service.MultiZoneService:
		a.MultiZoneService = d.Key.Service
	case service.ExternalService:
		a.ExternalService = d.Key.Service
	}
	for _, servers := range d.AllServers() {
		if servers.UseMTLS(secured) && servers.UnreachableReason(secured) == "" {
			a.MutualTLS = true
			a.Identities = append(a.Identities, servers.Identities...)
			a.TrustDomain = servers.TrustDomain
		}
	}
	if d.HasLocalities() {
		a.TrustDomain = ""
		slices.Sort(a.Identities)
		a.Identities = slices.Compact(a.Identities)
	}
	switch from := p.Group.Source; {
	case a.MutualTLS && from.FromSPIRE():
		a.TrustDomain, a.Unreachable = from.TrustDomain, cmp.Or(a.Unreachable, from.UntrustedReason(a.Identities))
	case a.MutualTLS:
		a.Unreachable = cmp.Or(a.Unreachable, untrustedReason(d))
	}
	for _, out := range p.Outbounds {
		if out.Destination == d.Key {
			a.Addresses = append(a.Addresses, kind.HostPort(out.Address, out.Port))
		}
	}
	if p.Group.Transparent {
		for _, vip := range proxy.DialedVIPs(d.VIPs, p.Group.IPFamilies) {
			a.Addresses = append(a.Addresses, kind.HostPort(vip.String(), d.Key.Port))
		}
	}
	return a
}
