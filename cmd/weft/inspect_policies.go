package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/inspect"
	"weft/internal/service"
	"weft/internal/spelling"
	"weft/kind"
)

func newInspectPoliciesCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "policies --for NAME",
		Short: "Show the effective policies of a proxy's traffic, field by field",
		Long: `Show the effective policies of a proxy as a whole, of the traffic that it sends, by destination, and of the traffic that
it receives, by inbound or external service and caller: each field that a policy sets, its value, the item of the policy
that sets it, and the items that it overrides. The first caller that matches decides. For traffic that a MeshHTTPRoute or a
MeshTCPRoute routes, the rules are shown too, with the fields that their filters and backends are from, and those that
they override. A field that is absent has its default; docs/defaults.md lists the defaults. A line for each policy that
the proxy is without follows, with the reason: its Envoy rejects it, or it costs proxies too much.`,
		Example: `  weft inspect policies --for web-1
  weft inspect policies --for web-1 --to backend -o json
  weft inspect policies --for web-1 --zone east --to backend-1dba9cea52b62f83`,
		Args: cobra.NoArgs,
	}
	var proxy, to string
	command.Flags().StringVar(&proxy, "for", "", "the Dataplane")
	command.Flags().StringVar(&to, "to", "",
		"a service, by the name that its zone, or the control plane, has for it; by default every destination, and "+
			"the received traffic")
	if err := command.MarkFlagRequired("for"); err != nil {
		panic(err)
	}
	o, zone := outputFlag(command, asTable, asJSON, asYAML), r.zoneFlag(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		applied := effectivePolicies{ZoneProxy: []policiesAt{}}
		path := client.Path(kind.Dataplanes, r.mesh, proxy) + "/_inspect"
		if err := c.Get(command.Context(), path, zoneQuery(*zone), &applied); err != nil {
			return err
		}
		if err := applied.narrow(proxy, to); err != nil {
			return err
		}
		if o.form != asTable {
			return printValue(command.OutOrStdout(), applied, o.form)
		}
		return applied.print(command.OutOrStdout(), command.ErrOrStderr())
	}
	return command
}

// effectivePolicies are the effective policies of a proxy.
type effectivePolicies struct {
	Inbounds   []policiesAt  `json:"inbounds"`
	ZoneProxy  []policiesAt  `json:"zoneProxy"`
	Outbounds  []policiesTo  `json:"outbounds"`
	WholeProxy []appliedConf `json:"wholeProxy,omitempty"`
	// LeftOut are the policies that target the proxy, and that it is without.
	LeftOut []inspect.AppliedLeftOut `json:"leftOut,omitempty"`
}

// narrow drops what no policy is about and, with the name of a service, all traffic but that to the service. It returns
// an error where the proxy reaches no service of the name.
func (p *effectivePolicies) narrow(proxy, to string) error {
	if to != "" {
		if err := p.selectService(proxy, to); err != nil {
			return err
		}
	}
	p.Outbounds = slices.DeleteFunc(p.Outbounds, func(out policiesTo) bool {
		return len(out.Confs) == 0 && out.Route == nil
	})
	withoutConf := func(in policiesAt) bool { return len(in.Confs)+len(in.Warnings) == 0 }
	p.Inbounds, p.ZoneProxy = slices.DeleteFunc(p.Inbounds, withoutConf), slices.DeleteFunc(p.ZoneProxy, withoutConf)
	return nil
}

// selectService drops all traffic but that to the services of a name.
func (p *effectivePolicies) selectService(proxy, to string) error {
	var reached []string
	for i := range p.Outbounds {
		reached = append(reached, p.Outbounds[i].service())
	}
	p.Outbounds = slices.DeleteFunc(p.Outbounds, func(out policiesTo) bool {
		return !out.hasName(to)
	})
	if len(p.Outbounds) == 0 {
		return fmt.Errorf("%s reaches no service %.300q%s", proxy, to, similarTo(to, reached))
	}
	p.Inbounds, p.ZoneProxy, p.WholeProxy = []policiesAt{}, []policiesAt{}, nil
	return nil
}

// similarTo returns the names that a misspelled one is most like, or else some of the known names, as the end of an
// error.
func similarTo(name string, known []string) string {
	slices.Sort(known)
	known = slices.Compact(known)
	if similar := spelling.Similar(name, known); len(similar) > 0 {
		return "; similar names are " + strings.Join(similar, ", ")
	}
	if len(known) > 0 {
		return "; it reaches " + someOf(known)
	}
	return "; it reaches none"
}

func (p *effectivePolicies) print(out, notes io.Writer) error {
	var whole, sent, received [][]string
	for i := range p.WholeProxy {
		whole = append(whole, p.WholeProxy[i].rows()...)
		for _, note := range p.WholeProxy[i].Notes {
			fmt.Fprintf(notes, "%s: %s\n", p.WholeProxy[i].Kind, note)
		}
	}
	for i := range p.Outbounds {
		sent = append(sent, p.Outbounds[i].rows()...)
	}
	for _, at := range [][]policiesAt{p.Inbounds, p.ZoneProxy} {
		for i := range at {
			received = append(received, at[i].rows()...)
			for _, warning := range at[i].Warnings {
				fmt.Fprintf(notes, "%s: %s\n", at[i].name(), warning)
			}
		}
	}
	for _, left := range p.LeftOut {
		fmt.Fprintf(notes, "%s: is left out (%s): %s\n", left.Policy, left.Reason, left.Message)
	}
	if len(whole)+len(sent)+len(received) == 0 {
		fmt.Fprintln(notes, "no policy sets a field: the defaults apply (docs/defaults.md)")
		return nil
	}
	fields := []string{"KIND", "FIELD", "VALUE", "SET BY", "MERGED FROM"}
	for _, table := range []struct {
		before []string
		rows   [][]string
	}{{nil, whole}, {[]string{"AT", "CALLERS"}, received}, {[]string{"TO"}, sent}} {
		if len(table.rows) == 0 {
			continue
		}
		if err := printTable(out, slices.Concat(table.before, fields), table.rows); err != nil {
			return err
		}
	}
	for i := range p.Outbounds {
		p.Outbounds[i].printNotes(out)
	}
	return nil
}

// policiesAt are the effective policies of an inbound, or of a section of a zone proxy.
type policiesAt struct {
	Section         string           `json:"section"`
	ExternalService string           `json:"meshExternalService,omitempty"`
	Service         string           `json:"service,omitempty"`
	Confs           []appliedCallers `json:"confs,omitempty"`
	Warnings        []string         `json:"warnings,omitempty"`
}

// appliedCallers is an [inspect.AppliedCallers] with the conf as JSON.
type appliedCallers struct {
	Match *kind.RuleMatch `json:"match,omitempty"`
	appliedConf
}

func (c *appliedCallers) callers() string {
	if c.Match == nil {
		return "every caller"
	}
	return c.Match.SpiffeID.String()
}

func (p *policiesAt) name() string {
	if of := p.ExternalService + p.Service; of != "" { // one of them
		return p.Section + " " + of
	}
	return p.Section
}

// rows returns a row for each field that a policy sets.
func (p *policiesAt) rows() [][]string {
	var rows [][]string
	for i := range p.Confs {
		for _, row := range p.Confs[i].rows() {
			rows = append(rows, append([]string{p.name(), p.Confs[i].callers()}, row...))
		}
	}
	return rows
}

// policiesTo are the effective policies of one destination.
type policiesTo struct {
	Destination      string        `json:"destination"`
	MeshService      string        `json:"meshService,omitempty"`
	MultiZoneService string        `json:"meshMultiZoneService,omitempty"`
	ExternalService  string        `json:"meshExternalService,omitempty"`
	Port             uint32        `json:"port"`
	Confs            []appliedConf `json:"confs,omitempty"`
	Route            *policiesBy   `json:"route,omitempty"`
}

// appliedConf is an [inspect.AppliedConf] with the conf as JSON.
type appliedConf struct {
	Kind    string                         `json:"kind"`
	Conf    json.RawMessage                `json:"conf"`
	Origins map[string]inspect.AppliedItem `json:"origins"`
	Items   []inspect.AppliedItem          `json:"items"`
	Notes   []string                       `json:"notes,omitempty"`
}

func (p *policiesTo) service() string {
	return p.MeshService + p.MultiZoneService + p.ExternalService // one of them
}

// hasName reports whether a control plane has the service under a name.
func (p *policiesTo) hasName(name string) bool {
	to, ok := service.ParseDestination(p.Destination)
	return ok && to.HasName(name)
}

// rows returns a row for each field that a policy sets.
func (p *policiesTo) rows() [][]string {
	var rows [][]string
	of := func(to string, confs []appliedConf) {
		for i := range confs {
			for _, row := range confs[i].rows() {
				rows = append(rows, append([]string{to}, row...))
			}
		}
	}
	to := fmt.Sprintf("%s:%d", p.service(), p.Port)
	of(to, p.Confs)
	if p.Route == nil {
		return rows
	}
	for i := range p.Route.Rules {
		rule := &p.Route.Rules[i]
		for _, row := range rule.rows(p.Route.Kind) {
			rows = append(rows, append([]string{to}, row...))
		}
		of(to+" "+rule.Name, rule.Confs)
	}
	return rows
}

// printNotes writes a line for each note about the destination.
func (p *policiesTo) printNotes(to io.Writer) {
	note := func(of, text string) { fmt.Fprintf(to, "note: %s:%d %s: %s\n", p.service(), p.Port, of, text) }
	for _, conf := range p.Confs {
		for _, text := range conf.Notes {
			note(conf.Kind, text)
		}
	}
	if p.Route == nil {
		return
	}
	for _, text := range p.Route.Notes {
		note(p.Route.Kind, text)
	}
	for i := range p.Route.Rules {
		for _, text := range p.Route.Rules[i].Unresolved {
			note(p.Route.Rules[i].Name, text)
		}
	}
}

// policiesBy are the rules of the policies that route the traffic to a destination; see [inspect.AppliedRouting].
type policiesBy struct {
	appliedConf
	Rules []routeRule `json:"rules"`
}

// routeRule is an [inspect.AppliedRouteRule] with the confs as JSON.
type routeRule struct {
	Name       string                           `json:"name"`
	Matches    []ruleMatch                      `json:"matches,omitempty"`
	Conf       kind.HTTPRouteAction             `json:"conf"`
	Origins    map[string]inspect.AppliedItem   `json:"origins"`
	Overridden map[string][]inspect.AppliedItem `json:"overridden,omitempty"`
	Backends   []inspect.AppliedBackend         `json:"backends,omitempty"`
	// OverriddenSNIs are the SNIs that another rule has, with the field that decides.
	OverriddenSNIs map[string]inspect.AppliedItem `json:"overriddenSNIs,omitempty"`
	Unresolved     []string                       `json:"unresolved,omitempty"`
	Confs          []appliedConf                  `json:"confs,omitempty"`
}

// ruleMatch is a match of a rule of a route of any kind.
type ruleMatch struct {
	kind.HTTPMatch
	kind.TCPMatch
}

func (m ruleMatch) String() string {
	if m.SNI != nil {
		return m.TCPMatch.String()
	}
	return m.HTTPMatch.String()
}

// rows returns a row for the filters, one for the backends of the rule, and one for each SNI that another rule has.
func (r *routeRule) rows(of string) [][]string {
	at := r.Name
	if len(r.Matches) > 0 {
		var matches []string
		for _, m := range r.Matches {
			matches = append(matches, m.String())
		}
		at += " (" + strings.Join(matches, " or ") + ")"
	}
	var filters, backends []string
	for i := range r.Conf.Filters {
		filters = append(filters, r.Conf.Filters[i].Type)
	}
	for _, b := range r.Backends {
		name := "missing"
		if to, ok := service.ParseDestination(b.Destination); ok {
			name = fmt.Sprintf("%s:%d", to.Service, to.Port)
		}
		backends = append(backends, fmt.Sprintf("%s weight %d", name, b.Weight))
	}
	var rows [][]string
	row := func(field string, value []string) {
		if from, ok := r.Origins[field]; ok {
			merged := []string{}
			for _, item := range append(slices.Clone(r.Overridden[field]), from) {
				merged = append(merged, item.String())
			}
			rows = append(rows, []string{of, at + " " + field, cmp.Or(strings.Join(value, ", "), "none"), from.String(),
				strings.Join(merged, ", ")})
		}
	}
	row("filters", filters)
	row("backendRefs", backends)
	for _, sni := range slices.Sorted(maps.Keys(r.OverriddenSNIs)) {
		by := r.OverriddenSNIs[sni].String()
		merged := r.Origins["matches"].String() + ", " + by
		rows = append(rows, []string{of, at + " SNI " + sni, "overridden", by, merged})
	}
	return rows
}

// rows returns the kind, path, value and origins of each field.
func (c *appliedConf) rows() [][]string {
	var merged []string
	for _, item := range c.Items {
		merged = append(merged, item.String())
	}
	var rows [][]string
	for _, path := range slices.Sorted(maps.Keys(c.Origins)) {
		rows = append(rows, []string{c.Kind, path, valueAt(c.Conf, path), c.Origins[path].String(),
			strings.Join(merged, ", ")})
	}
	return rows
}

// valueAt returns a field, or an item of a list, of an object as text. What cannot be found shows what it is in.
func valueAt(object json.RawMessage, path string) string {
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		i, err := strconv.Atoi(name)
		switch {
		case err == nil && json.Unmarshal(object, &items) == nil && i < len(items):
			object = items[i]
		case json.Unmarshal(object, &fields) == nil && fields[name] != nil:
			object = fields[name]
		default:
			return string(object)
		}
	}
	var text string
	if json.Unmarshal(object, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, object) != nil {
		return string(object)
	}
	return compact.String()
}
