package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/match"
	"weft/kind"
	"weft/resource"
)

// The model of Kuma's meaning: the last entry of `from` that matches decides, policies go from the least to the most
// specific target and, for the whole mesh, from the last name to the first, and nothing said is denied.

type modelTarget struct {
	Kind        string            `json:"kind"`
	Name        string            `json:"name,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	SectionName string            `json:"sectionName,omitempty"`
}

// rank is the place of a target in the order. The releases of Kuma differ in whether a section or a name comes first.
func (m modelTarget) rank() int {
	rank := 4 * slices.Index(modelRanks, m.Kind)
	if m.Kind == "Dataplane" && m.Name != "" {
		rank += 2
	}
	if m.SectionName != "" {
		rank++
	}
	return rank
}

type modelEntry struct {
	TargetRef modelTarget `json:"targetRef"`
	Default   struct {
		Action string `json:"action"`
	} `json:"default"`
}

type modelPolicy struct {
	name   string
	target modelTarget
	from   []modelEntry
	zone   string                  // the zone that owns it; empty: global
	of     string                  // the namespace whose proxies alone it concerns; empty: all of them
	rules  *kind.PermissionDefault // of its one rule, beside `from`
}

// modelRanks order policies of different kinds of targets.
var modelRanks = []string{"Mesh", "Dataplane", "MeshSubset", "MeshGateway", "MeshService", "MeshServiceSubset",
	"MeshHTTPRoute"}

// hits says whether a policy is about an inbound. A route is taken to be one of the inbounds of a version: which those
// of a route are is not in the export.
func (m modelTarget) hits(dp *resource.Object[kind.Dataplane], in *kind.Inbound) bool {
	switch m.Kind {
	case "Dataplane":
		return (m.Name == "" || m.Name == dp.Name) && kind.Subset(m.Labels, dp.Labels) &&
			(m.SectionName == "" || m.SectionName == fmt.Sprint(in.Port))
	case "MeshHTTPRoute", "MeshGateway":
		return m.Name == in.Tags["version"]
	}
	return m.has(in.Tags)
}

// has says whether an inbound, or a caller, has what a target names.
func (m modelTarget) has(tags map[string]string) bool {
	if (m.Kind == "MeshService" || m.Kind == "MeshServiceSubset") && tags[kind.ServiceTag] != m.Name {
		return false
	}
	return kind.Subset(m.Tags, tags)
}

// allowedByKuma says whether policies allow a caller by `from`, or by rules: what either denies, whatever the order of
// both, is not allowed by the other.
func allowedByKuma(policies []modelPolicy, dp *resource.Object[kind.Dataplane], in *kind.Inbound,
	caller map[string]string) bool {
	allowed, allowedByRules := false, false
	for _, p := range policies {
		if !p.target.hits(dp, in) || p.of != "" && p.of != dp.Labels[kind.NamespaceLabel] {
			continue
		}
		for _, e := range p.from {
			if e.TargetRef.has(caller) {
				allowed = e.Default.Action != "Deny"
			}
		}
		if p.rules != nil {
			id := modelID(caller[kind.ServiceTag])
			if matches(p.rules.Deny, id) {
				return false
			}
			allowedByRules = allowedByRules || matches(p.rules.Allow, id)
		}
	}
	return allowed || allowedByRules
}

func modelID(service string) string { return "spiffe://m/" + service }

// matches says whether a SPIFFE ID is one of some callers.
func matches(callers []kind.CallerMatch, id string) bool {
	return slices.ContainsFunc(callers, func(c kind.CallerMatch) bool {
		return c.SpiffeID.Pattern(&resource.Meta{}).Has(id)
	})
}

// allowedByWeft merges the permissions that hit an inbound: deny over allow.
func allowedByWeft(permissions []*resource.Object[kind.MeshTrafficPermission], dp *resource.Object[kind.Dataplane],
	in *kind.Inbound, id string) bool {
	allowed, section := false, fmt.Sprint(in.Port)
	for _, p := range permissions {
		if _, namespace, found := strings.Cut(p.Name, "."); found && namespace != dp.Labels[kind.NamespaceLabel] {
			continue
		}
		if p.Spec.TargetRef != nil {
			tags, older := p.Spec.TargetRef.InboundTags()
			if older && !kind.Subset(tags, in.Tags) || !older && !match.Selects(p.Spec.TargetRef, &dp.Meta, section) {
				continue
			}
		}
		for _, r := range p.Spec.Rules {
			if matches(r.Default.Deny, id) {
				return false
			}
			allowed = allowed || matches(r.Default.Allow, id) || matches(r.Default.AllowWithShadowDeny, id)
		}
	}
	return allowed
}

var modelServices = []string{"web", "cart"}

var modelVersions = []string{"v1", "v2"}

// modelProtocols are what weft writes in the place of each spelling of the tag kuma.io/protocol, which selectors of
// Kuma compare as it is written. The empty one is of an inbound, or a selector, without the tag.
var modelProtocols = map[string]string{"": "", "http": "http", "HTTP": "http", "Tcp": "tcp", "unknown": "tcp"}

// drawProtocol adds the tag kuma.io/protocol in a random spelling, or in none.
func drawProtocol(t *rapid.T, label string, tags map[string]string) map[string]string {
	spellings := slices.Sorted(maps.Keys(modelProtocols))
	if is := rapid.SampledFrom(spellings).Draw(t, label+" protocol"); is != "" {
		tags[kind.ProtocolTag] = is
	}
	return tags
}

// asServed returns a Dataplane as weft has it.
func asServed(dp *resource.Object[kind.Dataplane]) *resource.Object[kind.Dataplane] {
	served := resource.Clone(dp).(*resource.Object[kind.Dataplane])
	for _, in := range served.Spec.Networking.Inbound {
		if protocol := modelProtocols[in.Tags[kind.ProtocolTag]]; protocol != "" {
			in.Tags[kind.ProtocolTag] = protocol
		}
	}
	return served
}

// modelConstraints are those of the Mesh: each inbound of a Dataplane has the tags of a requirement, and of no
// restriction.
type modelConstraints struct {
	Requirements []kind.MembershipRule `json:"requirements,omitempty"`
	Restrictions []kind.MembershipRule `json:"restrictions,omitempty"`
}

func drawConstraints(t *rapid.T) (c modelConstraints) {
	for _, rules := range []*[]kind.MembershipRule{&c.Requirements, &c.Restrictions} {
		if rapid.IntRange(0, 2).Draw(t, "constraint") == 0 {
			tags := drawProtocol(t, "constraint", map[string]string{})
			if len(tags) == 0 {
				tags["version"] = "v1"
			}
			*rules = append(*rules, kind.MembershipRule{Tags: tags})
		}
	}
	return c
}

// admit says whether the Mesh admits a Dataplane in Kuma.
func (c *modelConstraints) admit(dp *resource.Object[kind.Dataplane]) bool {
	for _, in := range dp.Spec.Networking.Inbound {
		has := func(rule kind.MembershipRule) bool { return kind.Subset(rule.Tags, in.Tags) }
		if slices.ContainsFunc(c.Restrictions, has) ||
			len(c.Requirements) > 0 && !slices.ContainsFunc(c.Requirements, has) {
			return false
		}
	}
	return true
}

// drawTarget draws what a policy, or an entry of `from`, targets.
func drawTarget(t *rapid.T, label string, kinds ...string) modelTarget {
	m := modelTarget{Kind: rapid.SampledFrom(append([]string{"Mesh", "Mesh"}, kinds...)).Draw(t, label)}
	version := func() map[string]string {
		return map[string]string{"version": rapid.SampledFrom(modelVersions).Draw(t, label+" version")}
	}
	switch m.Kind {
	case "MeshService", "MeshServiceSubset":
		m.Name = rapid.SampledFrom(modelServices).Draw(t, label+" service")
	case "MeshHTTPRoute", "MeshGateway":
		m.Name = rapid.SampledFrom(modelVersions).Draw(t, label+" route")
	case "Dataplane":
		switch rapid.SampledFrom([]string{"all", "name", "labels"}).Draw(t, label+" by") {
		case "name":
			m.Name = rapid.SampledFrom([]string{"d0", "d1"}).Draw(t, label+" name")
		case "labels":
			m.Labels = version()
		}
		m.SectionName = rapid.SampledFrom([]string{"", "80", "81"}).Draw(t, label+" section")
	}
	if m.Kind == "MeshServiceSubset" || m.Kind == "MeshSubset" && rapid.IntRange(0, 3).Draw(t, label+" has tags") > 0 {
		switch rapid.SampledFrom([]string{"version", "version", "protocol", "both"}).Draw(t, label+" by") {
		case "version":
			m.Tags = version()
		case "protocol":
			m.Tags = drawProtocol(t, label, map[string]string{})
		case "both":
			m.Tags = drawProtocol(t, label, version())
		}
	}
	return m
}

func drawRules(t *rapid.T) *kind.PermissionDefault {
	callers := func(label string) []kind.CallerMatch {
		if !rapid.Bool().Draw(t, label) {
			return nil
		}
		return []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact",
			Value: modelID(rapid.SampledFrom(modelServices).Draw(t, label+" service"))}}}
	}
	return &kind.PermissionDefault{Deny: callers("deny"), Allow: callers("allow")}
}

// modelCallers yields the tags of every caller.
func modelCallers(yield func(map[string]string) bool) {
	for _, service := range append([]string{"other"}, modelServices...) {
		for _, version := range modelVersions {
			for protocol := range modelProtocols {
				caller := map[string]string{kind.ServiceTag: service, "version": version}
				if protocol != "" {
					caller[kind.ProtocolTag] = protocol
				}
				if !yield(caller) {
					return
				}
			}
		}
	}
}

// TestNothingIsAllowedThatKumaDenies translates random permissions of a mesh with random Dataplanes. What weft allows,
// Kuma allows, in the zone that owns some of them and in the others; where nothing is omitted, both allow the same.
func TestNothingIsAllowedThatKumaDenies(t *testing.T) {
	exact := 0
	rapid.Check(t, func(t *rapid.T) {
		var policies []modelPolicy
		copies := false
		for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
			p := modelPolicy{name: fmt.Sprintf("p%d", i), target: drawTarget(t, "target", modelRanks...)}
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				e := modelEntry{TargetRef: drawTarget(t, "from", "MeshSubset", "MeshService", "MeshServiceSubset")}
				e.Default.Action = rapid.SampledFrom([]string{"Allow", "Deny", "AllowWithShadowDeny"}).Draw(t, "action")
				p.from = append(p.from, e)
			}
			p.zone = rapid.SampledFrom([]string{"", "", "", "east"}).Draw(t, "zone")
			p.of = rapid.SampledFrom([]string{"", "", "", "apps", "shop"}).Draw(t, "namespace")
			if rapid.IntRange(0, 5).Draw(t, "has rules") == 0 {
				p.rules = drawRules(t)
			}
			copies = copies || p.zone != ""
			policies = append(policies, p)
		}
		constraints := drawConstraints(t)
		raw, _ := json.Marshal(map[string]any{"type": "Mesh", "name": "m",
			"mtls": map[string]any{"enabledBackend": "a", "backends": []any{map[string]any{"name": "a",
				"type": "builtin"}}},
			"constraints": map[string]any{"dataplaneProxy": constraints}})
		documents := []Document{documentOf("mesh", raw)}
		for _, p := range policies {
			spec := map[string]any{"targetRef": p.target, "from": p.from}
			if p.rules != nil {
				spec["rules"] = []any{map[string]any{"default": p.rules}}
			}
			labels := map[string]string{}
			if p.zone != "" {
				labels = map[string]string{kind.OriginLabel: "zone", kind.ZoneLabel: p.zone}
			}
			name := p.name
			if p.of != "" {
				labels[kind.NamespaceLabel], name = p.of, name+"."+p.of
			}
			raw, _ := json.Marshal(map[string]any{"type": "MeshTrafficPermission", "mesh": "m", "name": name,
				"labels": labels, "spec": spec})
			documents = append(documents, documentOf(p.name, raw))
		}
		if copies { // of a second zone, so that the export is that of a global control plane
			documents = append(documents,
				documentOf("west", []byte(
					`{type: ZoneIngress, name: west, zone: west, networking: {address: 10.0.0.1, port: 10001}}`)))
		}
		var dataplanes []*resource.Object[kind.Dataplane]
		for i := range rapid.IntRange(1, 3).Draw(t, "Dataplanes") {
			version := rapid.SampledFrom(modelVersions).Draw(t, "version")
			labels := map[string]string{}
			if rapid.Bool().Draw(t, "has the version as a label") {
				labels["version"] = version
			}
			if app := rapid.SampledFrom([]string{"", "web", "cart"}).Draw(t, "app"); app != "" {
				labels["app"] = app
			}
			labels[kind.NamespaceLabel] = rapid.SampledFrom([]string{"apps", "shop"}).Draw(t, "namespace")
			var inbounds []map[string]any
			for j := range rapid.IntRange(1, 2).Draw(t, "inbounds") {
				tags := map[string]string{"kuma.io/service": rapid.SampledFrom(modelServices).Draw(t, "service"),
					"version": version}
				inbounds = append(inbounds,
					map[string]any{"port": 80 + j, "tags": drawProtocol(t, "inbound", tags)})
			}
			raw, _ := json.Marshal(map[string]any{"type": "Dataplane", "mesh": "m", "name": fmt.Sprintf("d%d", i),
				"labels":     labels,
				"networking": map[string]any{"address": "10.0.0.1", "inbound": inbounds}})
			documents = append(documents, documentOf(fmt.Sprintf("d%d", i), raw))
			o, err := resource.Parse(raw, kind.ByName)
			if err != nil {
				t.Fatal(err)
			}
			dataplanes = append(dataplanes, o.(*resource.Object[kind.Dataplane]))
		}
		onKubernetes := rapid.Bool().Draw(t, "on Kubernetes")
		result, err := Translate(documents, Options{Kubernetes: onKubernetes, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		complete := !copies
		var permissions []*resource.Object[kind.MeshTrafficPermission]
		var mesh *resource.Object[kind.Mesh]
		for _, n := range result.Notes {
			complete = complete && (n.Outcome != Omitted || n.Kind != kind.MeshTrafficPermissions.Name)
		}
		for _, o := range result.Resources {
			switch o := o.(type) {
			case *resource.Object[kind.MeshTrafficPermission]:
				permissions = append(permissions, o)
			case *resource.Object[kind.Mesh]:
				mesh = o
			}
		}
		complete = complete && mesh != nil
		if complete {
			exact++
		}
		slices.SortStableFunc(policies, func(a, b modelPolicy) int {
			if by := a.target.rank() - b.target.rank(); by != 0 {
				return by
			}
			if a.zone != b.zone {
				return strings.Compare(a.zone, b.zone) // global before a zone
			}
			if (a.of == "") != (b.of == "") {
				return strings.Compare(a.of, b.of) // the system before a namespace
			}
			return strings.Compare(b.name, a.name)
		})
		global := slices.DeleteFunc(slices.Clone(policies), func(p modelPolicy) bool { return p.zone != "" })
		for _, dp := range dataplanes {
			served := asServed(dp)
			inMesh := mesh != nil && mesh.Spec.DataplaneProxyMembership.ExcludedBy(served, "",
				kind.Exemption{Tags: true}) == ""
			for i, in := range dp.Spec.Networking.Inbound {
				for caller := range modelCallers {
					admitted := constraints.admit(dp)
					kuma := admitted && allowedByKuma(policies, dp, &in, caller)
					ofGlobal := admitted && allowedByKuma(global, dp, &in, caller)
					weft := inMesh && allowedByWeft(permissions, served, &served.Spec.Networking.Inbound[i],
						modelID(caller[kind.ServiceTag]))
					if weft && !(kuma && ofGlobal) || complete && weft != kuma {
						resources, notes := show(t, result)
						t.Fatalf("%v calls %s %v: Kuma allows it: %v, weft: %v\n%s\n%s", caller, dp.Name, in.Tags,
							kuma, weft, resources, notes)
					}
				}
			}
		}
	})
	if exact == 0 {
		t.Error("nothing is translated completely, so that this test proves little")
	}
}
