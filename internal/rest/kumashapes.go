package rest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"weft/internal/access"
	"weft/internal/envoy"
	"weft/internal/inspect"
	"weft/internal/preview"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// inspectRoutes returns the inspections with the paths and shapes of Kuma's API that any control plane computes from
// what it has stored; those of proxies are [api.ownedRoutes].
func (a *api) inspectRoutes() []route {
	routes := []route{
		{"GET /meshes/{mesh}/dataplanes/{name}/_config", access.ViewConfigDump, a.kumaConfig},
		{"GET /config", access.ControlPlaneMetadata, a.config},
	}
	for _, d := range kind.Policies() {
		path := "GET /meshes/{mesh}/" + d.Describe().Plural + "/{name}/"
		routes = append(routes,
			route{path + "dataplanes", access.Read, a.policyDataplanes(d, attached)},
			route{path + "_resources/dataplanes", access.Read, a.policyDataplanes(d, bare)},
			route{path + "-resources/dataplanes", access.Read, a.policyDataplanes(d, bare)})
	}
	return routes
}

// selectedPage is the part of a list of Dataplanes, in the order of their row keys, that the query of a request
// selects. Without a cursor, the next page begins at a number, as in Kuma.
func (a *api) selectedPage(w http.ResponseWriter, r *http.Request, m *snapshot, all []resource.Any,
	show func(resource.Any) any) error {
	c := &listing{of: kind.Meshes, show: func(_ *snapshot, o resource.Any) (any, error) { return show(o), nil }}
	q, err := a.parseQuery(r.URL.Query(), c)
	if err != nil {
		return err
	}
	rows := func(yield func(*listed) bool) {
		for _, o := range all {
			if !yield(&listed{Any: o}) {
				return
			}
		}
	}
	page, err := q.respond(m, r, c, q.pick(m, c, rows))
	if err != nil {
		return err
	}
	if page.Next != nil && !q.strict {
		*page.Next = pageURL(r, "offset", strconv.Itoa(q.offset+len(page.Items)))
	}
	return a.writeValidated(w, r, page)
}

// writePage responds with a list on one page.
func (a *api) writePage(w http.ResponseWriter, r *http.Request, items []any) error {
	return a.writeValidated(w, r, listPage{Total: len(items), Items: append([]any{}, items...)})
}

// kriMeta returns the metadata of a resource in an inspection.
func kriMeta(o resource.Any) shownMeta { return metaOf(o.Key().Kind, o) }

// inspected is a Dataplane with the resources that determine its proxy's configuration.
type inspected struct {
	*snapshot
	dataplane *resource.Object[kind.Dataplane]
	applied   *inspect.Applied
}

func (a *api) inspectedProxy(r *http.Request) (inspected, error) {
	key := keyOf(kind.Dataplanes, r)
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return inspected{}, err
	}
	o, err := m.need(key)
	if err != nil {
		return inspected{}, err
	}
	applied := a.Inspector.AppliedConfs(state.ProxyKey{Mesh: key.Mesh, Name: key.Name})
	if applied == nil {
		return inspected{}, m.missing(key, "")
	}
	return inspected{m, dataplane(o), applied}, nil
}

// policies returns the policies that are named, by kind and in the order of their names in the list.
func (p inspected) policies(named []string) []resource.Any {
	var found []resource.Any
	for _, k := range kind.Policies() {
		info, seen := k.Describe(), map[string]bool{}
		for _, policy := range named {
			name, of := strings.CutPrefix(policy, info.Name+" "+p.dataplane.Mesh+"/")
			if !of || seen[name] {
				continue
			}
			if o, ok := p.find(resource.Key{Kind: info.Name, Mesh: p.dataplane.Mesh, Name: name}); ok {
				seen[name] = true
				found = append(found, o)
			}
		}
	}
	return found
}

// named returns the policies that apply to an inbound or to a destination of the proxy, in the order of their merge.
func (p inspected) named() []string {
	var named []string
	for _, in := range p.applied.Inbounds {
		named = append(named, in.Policies...)
		for _, conf := range in.Confs {
			named = append(named, policiesOf(conf.AppliedConf)...)
		}
	}
	for _, out := range p.applied.Outbounds {
		for _, conf := range out.Confs {
			named = append(named, policiesOf(conf)...)
		}
		if out.Route != nil {
			named = append(named, policiesOf(out.Route.AppliedConf)...)
			for i := range out.Route.Rules {
				for _, conf := range out.Route.Rules[i].Confs {
					named = append(named, policiesOf(conf)...)
				}
			}
		}
	}
	for _, conf := range p.applied.WholeProxy {
		named = append(named, policiesOf(conf)...)
	}
	return named
}

// policiesOf returns the policies that an effective conf was merged from.
func policiesOf(conf inspect.AppliedConf) []string {
	var named []string
	for _, item := range conf.Items {
		named = append(named, item.Policy)
	}
	return named
}

// matchedPolicies lists the policies that apply to a proxy, as kumactl 2 reads them.
func (a *api) matchedPolicies(w http.ResponseWriter, r *http.Request) error {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return err
	}
	type item struct {
		Type            string                 `json:"type"`
		MatchedPolicies map[string][]shownMeta `json:"matchedPolicies"`
	}
	items := []item{}
	matched := map[string][]shownMeta{}
	for _, o := range p.policies(p.named()) {
		matched[o.Key().Kind] = append(matched[o.Key().Kind], kriMeta(o))
	}
	if len(matched) > 0 {
		items = append(items, item{"dataplane", matched})
	}
	return writeJSON(w, http.StatusOK, struct {
		Kind  string `json:"kind"`
		Total int    `json:"total"`
		Items []item `json:"items"`
	}{"SidecarDataplane", len(items), items})
}

// origin is a policy that a configuration was generated from.
type origin struct {
	KRI string `json:"kri"`
}

// effectivePolicies lists the policies that apply to a proxy, as kumactl 3 reads them.
func (a *api) effectivePolicies(w http.ResponseWriter, r *http.Request) error {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return err
	}
	type policy struct {
		Kind string `json:"kind"`
		// Conf is the effective conf about the whole proxy. That of other kinds differs from inbound to inbound and
		// from destination to destination: `_rules` has it.
		Conf    any      `json:"conf"`
		Origins []origin `json:"origins"`
	}
	policies := []policy{}
	for _, o := range p.policies(p.named()) {
		if last := len(policies) - 1; last < 0 || policies[last].Kind != o.Key().Kind {
			of := policy{Kind: o.Key().Kind, Conf: struct{}{}}
			if whole := p.wholeProxy(of.Kind); whole != nil {
				of.Conf = whole.Conf
			}
			policies = append(policies, of)
		}
		last := &policies[len(policies)-1]
		last.Origins = append(last.Origins, origin{kriMeta(o).KRI})
	}
	return writeJSON(w, http.StatusOK, map[string]any{"policies": policies})
}

type ruleInbound struct {
	Name string            `json:"name"`
	Port uint32            `json:"port"`
	Tags map[string]string `json:"tags"`
}

type ruleOrigin struct {
	ResourceMeta shownMeta `json:"resourceMeta"`
}

// inboundRule is the effective conf of some callers. The origins are a list of [ruleOrigin] or [toOrigin].
type inboundRule struct {
	Conf    []any                          `json:"conf"`
	Match   any                            `json:"match,omitempty"` // absent: every caller
	Origin  any                            `json:"origin"`
	Origins map[string]inspect.AppliedItem `json:"origins,omitempty"` // by the path of the field
}

type inboundRuleEntry struct {
	Inbound ruleInbound   `json:"inbound"`
	Rules   []inboundRule `json:"rules"`
}

// toRule is the effective conf of the traffic to one port of a service.
type toRule struct {
	ResourceMeta        shownMeta                      `json:"resourceMeta"`
	ResourceSectionName string                         `json:"resourceSectionName"`
	Conf                []any                          `json:"conf"`
	Origin              []toOrigin                     `json:"origin"`
	Origins             map[string]inspect.AppliedItem `json:"origins"` // by the path of the field
}

// toOrigin is an item of a policy that an effective conf was merged from, the least specific one first.
type toOrigin struct {
	ResourceMeta shownMeta `json:"resourceMeta"`
	RuleIndex    int       `json:"ruleIndex"`
}

// proxyRule is the effective conf of the whole proxy.
type proxyRule struct {
	Conf    any                            `json:"conf"`
	Origin  []shownMeta                    `json:"origin"`  // the least specific one first
	Origins map[string]inspect.AppliedItem `json:"origins"` // by the path of the field
}

type policyRules struct {
	Type            string             `json:"type"`
	ProxyRule       *proxyRule         `json:"proxyRule,omitempty"`
	InboundRules    []inboundRuleEntry `json:"inboundRules"`
	FromRules       []any              `json:"fromRules"`
	ToRules         []any              `json:"toRules"`
	ToResourceRules []toRule           `json:"toResourceRules"`
	Warnings        []string           `json:"warnings"`
}

func rulesOf(policies string) policyRules {
	return policyRules{Type: policies, InboundRules: []inboundRuleEntry{}, FromRules: []any{}, ToRules: []any{},
		ToResourceRules: []toRule{}, Warnings: []string{}}
}

// effectiveRules returns the merged permissions of each inbound of a proxy, and the effective confs of each
// destination.
func (a *api) effectiveRules(w http.ResponseWriter, r *http.Request) error {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return err
	}
	rules := []policyRules{}
	for _, in := range p.applied.Inbounds {
		origins := []ruleOrigin{}
		for _, o := range p.policies(in.Policies) {
			origins = append(origins, ruleOrigin{kriMeta(o)})
		}
		if in.Rules == nil || len(origins) == 0 {
			continue
		}
		if len(rules) == 0 {
			rules = append(rules, rulesOf(kind.MeshTrafficPermissions.Name))
		}
		rules[0].InboundRules = append(rules[0].InboundRules, inboundRuleEntry{
			ruleInbound{in.Section, in.Port, tagsAt(&p.dataplane.Spec.Networking, in.Address, in.Port)},
			[]inboundRule{{Conf: []any{in.Rules}, Origin: origins}},
		})
	}
	rules = append(rules, p.mergedRules()...)
	return writeJSON(w, http.StatusOK, struct {
		Resource    shownMeta     `json:"resource"`
		Rules       []policyRules `json:"rules"`
		HTTPMatches []httpMatch   `json:"httpMatches"`
	}{kriMeta(p.dataplane), rules, p.httpMatches()})
}

// olderRules is the list in which Kuma 1 had the rules by tags. A proxy has none: `_rules` has its rules.
func (a *api) olderRules(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.inspectedProxy(r); err != nil {
		return err
	}
	return a.writePage(w, r, nil)
}

// mergedRules returns the effective confs of each inbound and destination, by kind of policies.
func (p inspected) mergedRules() []policyRules {
	var rules []policyRules
	for _, k := range kind.Policies() {
		of := rulesOf(k.Describe().Name)
		for i := range p.applied.Outbounds {
			out := &p.applied.Outbounds[i]
			for _, conf := range out.Confs {
				if service, ok := p.find(p.serviceOf(out)); ok && conf.Kind == of.Type {
					of.ToResourceRules = append(of.ToResourceRules, p.toRule(service, out, conf))
				}
			}
			if route := out.Route; route != nil && route.Kind == of.Type {
				if service, ok := p.find(p.serviceOf(out)); ok {
					of.ToResourceRules = append(of.ToResourceRules, p.toRule(service, out, route.AppliedConf))
					of.Warnings = append(of.Warnings, routeWarnings(out)...)
				}
			}
		}
		of.InboundRules = append(of.InboundRules, p.inboundRules(of.Type)...)
		if whole := p.wholeProxy(of.Type); whole != nil {
			of.ProxyRule = &proxyRule{Conf: whole.Conf, Origins: whole.Origins}
			for _, origin := range p.itemOrigins(whole.Items) {
				of.ProxyRule.Origin = append(of.ProxyRule.Origin, origin.ResourceMeta)
			}
			of.Warnings = append(of.Warnings, whole.Notes...)
		}
		if len(of.ToResourceRules)+len(of.InboundRules) > 0 || of.ProxyRule != nil {
			rules = append(rules, of)
		}
	}
	return rules
}

// wholeProxy returns the effective conf of a kind about the whole proxy, or nil.
func (p inspected) wholeProxy(of string) *inspect.AppliedConf {
	i := slices.IndexFunc(p.applied.WholeProxy, func(c inspect.AppliedConf) bool { return c.Kind == of })
	if i < 0 {
		return nil
	}
	return &p.applied.WholeProxy[i]
}

// routeWarnings returns what of a route has no effect, or another one than its policies say.
func routeWarnings(out *inspect.AppliedOutbound) []string {
	var warnings []string
	for _, note := range out.Route.Notes {
		warnings = append(warnings, out.Destination+": "+note)
	}
	for i := range out.Route.Rules {
		warnings = append(warnings, out.Route.Rules[i].Unresolved...)
	}
	return warnings
}

// inboundRules returns the effective confs of a kind by inbound and caller.
func (p inspected) inboundRules(of string) []inboundRuleEntry {
	var entries []inboundRuleEntry
	for _, in := range p.applied.Inbounds {
		entry := inboundRuleEntry{Inbound: ruleInbound{in.Section, in.Port,
			tagsAt(&p.dataplane.Spec.Networking, in.Address, in.Port)}}
		for _, conf := range in.Confs {
			if conf.Kind != of {
				continue
			}
			rule := inboundRule{Conf: []any{conf.Conf}, Origin: p.itemOrigins(conf.Items), Origins: conf.Origins}
			if conf.Match != nil {
				rule.Match = conf.Match
			}
			entry.Rules = append(entry.Rules, rule)
		}
		if len(entry.Rules) > 0 {
			entries = append(entries, entry)
		}
	}
	return entries
}

// itemOrigins returns the policies of items.
func (p inspected) itemOrigins(items []inspect.AppliedItem) []toOrigin {
	var origins []toOrigin
	for _, item := range items {
		for _, o := range p.policies([]string{item.Policy}) {
			origins = append(origins, toOrigin{kriMeta(o), item.Index})
		}
	}
	return origins
}

// inboundPolicies returns the effective confs of the callers of an inbound, which is given by the KRI of the Dataplane
// with its section.
func (a *api) inboundPolicies(w http.ResponseWriter, r *http.Request) error {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return err
	}
	own, _ := resource.KRIOf(&p.dataplane.Meta, &kind.Dataplanes.Info)
	i := slices.IndexFunc(p.applied.Inbounds, func(in inspect.AppliedInbound) bool {
		own.Section = in.Section
		return own.String() == r.PathValue("kri")
	})
	if i < 0 {
		return resource.Errorf(resource.NotFound, "%s has no inbound %s", p.dataplane.Key(), r.PathValue("kri"))
	}
	type rule struct {
		KRI   string          `json:"kri"` // of the policy that decides over the others
		Match *kind.RuleMatch `json:"match,omitempty"`
		Conf  any             `json:"conf"`
	}
	type policy struct {
		Kind    string   `json:"kind"`
		Rules   []rule   `json:"rules"`
		Origins []origin `json:"origins"`
	}
	policies := []policy{}
	for _, conf := range p.applied.Inbounds[i].Confs {
		if last := len(policies) - 1; last < 0 || policies[last].Kind != conf.Kind {
			policies = append(policies, policy{Kind: conf.Kind, Rules: []rule{}, Origins: []origin{}})
		}
		of, entry := &policies[len(policies)-1], rule{Match: conf.Match, Conf: conf.Conf}
		for _, o := range p.policies(policiesOf(conf.AppliedConf)) {
			entry.KRI = kriMeta(o).KRI
			if !slices.Contains(of.Origins, origin{entry.KRI}) {
				of.Origins = append(of.Origins, origin{entry.KRI})
			}
		}
		of.Rules = append(of.Rules, entry)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"policies": policies})
}

// serviceOf returns the service that a destination is a port of.
func (p inspected) serviceOf(out *inspect.AppliedOutbound) resource.Key {
	key, _ := service.ParseDestination(out.Destination)
	row := p.State.Services.Row(key)
	return resource.Key{Kind: key.Kind.String(), Mesh: row.Mesh, Name: row.Name}
}

func (p inspected) toRule(service resource.Any, out *inspect.AppliedOutbound, conf inspect.AppliedConf) toRule {
	rule := toRule{ResourceMeta: kriMeta(service), ResourceSectionName: strconv.Itoa(int(out.Port)),
		Conf: []any{conf.Conf}, Origins: conf.Origins}
	rule.Origin = p.itemOrigins(conf.Items)
	return rule
}

// tagsAt returns the tags of the first inbound at a listener. A host name matches any address.
func tagsAt(n *kind.Networking, address string, port uint32) map[string]string {
	for _, in := range n.Inbound {
		if in = n.Effective(in); (in.Address == address || kind.NeedsLookup(in.Address)) && in.Port == port {
			return in.Tags
		}
	}
	return map[string]string{}
}

// layoutEntry is one listener or destination of a proxy, with its name in Envoy.
type layoutEntry struct {
	KRI               string        `json:"kri"`
	Port              uint32        `json:"port"`
	Protocol          kind.Protocol `json:"protocol"`
	ProxyResourceName string        `json:"proxyResourceName"`
}

// layout lists the listeners and destinations of a proxy.
func (a *api) layout(w http.ResponseWriter, r *http.Request) error {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return err
	}
	own, _ := resource.KRIOf(&p.dataplane.Meta, &kind.Dataplanes.Info)
	type listener struct {
		KRI               string `json:"kri"`
		Type              string `json:"type"` // ZoneIngress or ZoneEgress
		Port              uint32 `json:"port"`
		ProxyResourceName string `json:"proxyResourceName"`
	}
	inbounds, outbounds, listeners := []layoutEntry{}, []layoutEntry{}, []listener{}
	zoneProxy := func(of, name, address string, port uint32) {
		at := own
		at.Section = cmp.Or(name, strconv.Itoa(int(port)))
		listeners = append(listeners, listener{at.String(), of, port, envoy.InboundName(address, port)})
	}
	n := &p.dataplane.Spec.Networking
	if z := n.ZoneIngress; z != nil {
		zoneProxy("ZoneIngress", z.Name, z.Address, z.Port)
	}
	if z := n.ZoneEgress; z != nil {
		zoneProxy("ZoneEgress", z.Name, z.Address, z.Port)
	}
	for _, in := range p.applied.Inbounds {
		at := own
		at.Section = in.Section
		inbounds = append(inbounds,
			layoutEntry{at.String(), in.Port, in.Protocol, envoy.InboundName(in.Address, in.Port)})
	}
	for _, out := range p.applied.Outbounds {
		outbounds = append(outbounds, layoutEntry{out.Destination, out.Port, out.Protocol, out.Destination})
	}
	return writeJSON(w, http.StatusOK, struct {
		KRI       string            `json:"kri"`
		Labels    map[string]string `json:"labels"`
		SpiffeID  string            `json:"spiffeId,omitempty"` // absent: the proxy has no identity
		Inbounds  []layoutEntry     `json:"inbounds"`
		Outbounds []layoutEntry     `json:"outbounds"`
		Listeners []listener        `json:"listeners"`
	}{own.String(), p.dataplane.Labels, p.applied.Identity.SpiffeID, inbounds, outbounds, listeners})
}

// kumaConfig returns the configuration of a proxy by type and name: with `shadow=true` the one in which shadow policies
// have their effect, and with `include=diff` the JSON patch from the present one to it.
func (a *api) kumaConfig(w http.ResponseWriter, r *http.Request) error {
	values, shadow := r.URL.Query(), false
	if text := values.Get("shadow"); text != "" {
		var err error
		if shadow, err = strconv.ParseBool(text); err != nil {
			return invalidQuery(resource.Problem{Field: "shadow", Reason: strconv.Quote(text) +
				" is neither true nor false"})
		}
	}
	shown, err := a.sentTo(r, shadow)
	if err != nil {
		return err
	}
	present, diff := shown, slices.Contains(strings.Split(values.Get("include"), ","), "diff")
	if shadow && diff {
		if present, err = a.sentTo(r, false); err != nil {
			return err
		}
	}
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	response := struct {
		XDS  configDocument `json:"xds"`
		Diff *[]operation   `json:"diff,omitempty"`
	}{}
	if response.XDS, err = documentOf(shown); err != nil {
		return err
	}
	if diff {
		before, err := documentOf(present)
		if err != nil {
			return err
		}
		patch := []operation{}
		for _, field := range preview.Fields(before.plain(), response.XDS.plain()) {
			patch = append(patch, operation{field.Op, "/xds" + field.Path, field.Value})
		}
		response.Diff = &patch
	}
	return writeJSON(w, http.StatusOK, response)
}

// configDocument is the configuration of a proxy by type URL and name.
type configDocument map[string]map[string]json.RawMessage

func documentOf(resources []*xds.Resource) (configDocument, error) {
	document := configDocument{}
	for _, res := range resources {
		message, err := res.Message()
		if err != nil {
			return nil, err
		}
		body, err := protojson.Marshal(message)
		if err != nil {
			return nil, err
		}
		if document[res.Type.URL()] == nil {
			document[res.Type.URL()] = map[string]json.RawMessage{}
		}
		document[res.Type.URL()][res.Name] = body
	}
	return document, nil
}

// plain returns the document as a JSON value.
func (d configDocument) plain() any {
	text, err := json.Marshal(d)
	var value any
	if err != nil || json.Unmarshal(text, &value) != nil {
		panic("rest: a resource's JSON form is invalid") // protojson wrote it
	}
	return value
}

// attached returns a Dataplane as kumactl lists it for a policy.
func attached(o resource.Any) any {
	type named struct {
		Mesh string `json:"mesh"`
		Name string `json:"name"`
	}
	type attachment struct {
		Type string `json:"type"`
	}
	return struct {
		Kind        string       `json:"kind"`
		Dataplane   named        `json:"dataplane"`
		Attachments []attachment `json:"attachments"`
	}{"SidecarDataplane", named{o.Key().Mesh, o.Key().Name}, []attachment{{"dataplane"}}}
}

// bare returns a Dataplane as other lists contain it.
func bare(o resource.Any) any { return kriMeta(o) }

// policyDataplanes lists the Dataplanes that a policy selects, entirely or by a section.
func (a *api) policyDataplanes(p kind.Policy, show func(resource.Any) any) func(http.ResponseWriter,
	*http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, err := a.read(r.Context(), kind.Meshes, p, kind.Dataplanes)
		if err != nil {
			return err
		}
		o, err := m.requested(r, p)
		if err != nil {
			return err
		}
		reader := table.Eval(m.Snapshot)
		var selected []resource.Any
		for dp := range m.State.Tables.Dataplanes.RowsAfter(m.Snapshot, state.MeshKey(o.Key().Mesh), "") {
			proxy := state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}
			if _, selects := m.State.Proxies.SelectionOf(reader, o.Key(), proxy); selects {
				selected = append(selected, dp)
			}
		}
		return a.selectedPage(w, r, m, selected, show)
	}
}

// serviceDataplanes lists the Dataplanes that a MeshService selects. Only the service's own zone knows them.
func (a *api) serviceDataplanes(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return err
	}
	o, err := m.need(keyOf(kind.MeshServices, r))
	if err != nil {
		return err
	}
	var selected []resource.Any
	last := ""
	for dp := range m.State.Services.SelectedInbounds(table.Eval(m.Snapshot), o.(*resource.Object[kind.MeshService])) {
		if dp.Name != last {
			selected = append(selected, dp)
		}
		last = dp.Name
	}
	return a.selectedPage(w, r, m, selected, bare)
}

// config returns the effective settings in the form of a settings file. Secret values are masked.
func (a *api) config(w http.ResponseWriter, _ *http.Request) error {
	raw, err := json.Marshal(a.Settings)
	if err != nil {
		return err
	}
	var settings []struct{ Path, Value string }
	if err := json.Unmarshal(raw, &settings); err != nil {
		return err
	}
	root := map[string]any{}
	for _, s := range settings {
		parent, names := root, strings.Split(s.Path, ".")
		for _, name := range names[:len(names)-1] {
			inner, ok := parent[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				parent[name] = inner
			}
			parent = inner
		}
		parent[names[len(names)-1]] = scalar(s.Value)
	}
	return writeJSON(w, http.StatusOK, root)
}

// scalar returns a setting as a JSON value.
func scalar(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}
