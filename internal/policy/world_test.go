package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// conf has a field of every form that merges on its own.
type conf struct {
	Connect     *int       `json:"connect,omitempty"`
	Idle        *int       `json:"idle,omitempty"`
	Request     *int       `json:"request,omitempty"`
	StreamIdle  *int       `json:"streamIdle,omitempty"`
	MaxStream   *int       `json:"maxStream,omitempty"`
	Detectors   *detectors `json:"detectors,omitempty"`
	RetryOn     []string   `json:"retryOn,omitempty"`
	AppendMatch []string   `json:"appendMatch,omitempty" merge:"append"`
	Rules       []routing  `json:"rules,omitempty" merge:"key=matches"`
	Backends    []string   `json:"backends,omitempty"`
}

type detectors struct {
	TotalFailures   *int `json:"totalFailures,omitempty"`
	GatewayFailures *int `json:"gatewayFailures,omitempty"`
}

type routing struct {
	Matches []routeMatch `json:"matches"`
	Default struct {
		Filters     []string `json:"filters,omitempty"`
		BackendRefs []string `json:"backendRefs,omitempty"`
	} `json:"default"`
}

// routeMatch is keyed: an absent path is the prefix "/".
type routeMatch struct {
	Path string `json:"path,omitempty"`
}

func (m routeMatch) MergeKey() string { return "/" + strings.TrimPrefix(m.Path, "/") }

// world is policies of one kind, one part a line:
//
//	NAME WORDS: TARGET > TO {CONF}   a to item; a further line of the same name is the next one
//	NAME WORDS: TARGET < MATCH {CONF}   a rule
//	NAME WORDS: TARGET = {CONF}   a default
//
// Words are global, zone, producer, consumer, workload-owner, shadow and LABEL=VALUE.
type world struct {
	list  *List
	parts map[resource.Key][]Part
}

func newWorld(t testing.TB, text string, shadow bool) *world {
	t.Helper()
	w := &world{parts: map[resource.Key][]Part{}}
	var policies []*Policy
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, rest, _ := strings.Cut(line, ": ")
		words := strings.Fields(name)
		meta := &resource.Meta{Mesh: "m", Name: words[0], Labels: labelsOf(words[1:])}
		if Shadow(meta) && !shadow {
			continue
		}
		rest, raw, _ := strings.Cut(rest, "{")
		part := Part{Conf: parseConf(t, "{"+raw)}
		key := resource.Key{Kind: "MeshTest", Mesh: "m", Name: meta.Name}
		part.Index = len(w.parts[key])
		target := strings.Fields(rest)
		for i, word := range target {
			switch about := target[min(i+1, len(target)):]; word {
			case ">":
				part.To = parseTo(about)
			case "<":
				part.Match = parseMatch(about)
			case "=":
			default:
				continue
			}
			target = target[:i]
			break
		}
		if part.Index == 0 {
			policies = append(policies, New(key, meta, targetOf(target)))
		}
		w.parts[key] = append(w.parts[key], part)
	}
	w.list = NewList(policies)
	return w
}

// applying returns the parts that apply to a section of a proxy, sorted.
func (w *world) applying(p *Proxy, section string) []Part {
	var parts []Part
	for _, selected := range w.list.Select(p) {
		if section != "" && !selected.AppliesTo(section) {
			continue
		}
		for _, part := range slices.Backward(w.parts[selected.Key]) {
			part.Policy = selected.Policy
			parts = append(parts, part)
		}
	}
	Sort(parts)
	return parts
}

func parseConf(t testing.TB, raw string) *conf {
	t.Helper()
	c := &conf{}
	if err := json.Unmarshal([]byte(raw), c); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return c
}

func labelsOf(words []string) map[string]string {
	labels := map[string]string{}
	for _, word := range words {
		name, value, found := strings.Cut(word, "=")
		switch {
		case found && name == "ns":
			labels[resource.NamespaceLabel] = value
		case found:
			labels[name] = value
		case word == "shadow":
			labels[EffectLabel] = word
		case word == "global" || word == "zone":
			labels[kind.OriginLabel] = word
			labels[resource.ZoneLabel] = map[string]string{"zone": "east"}[word]
		default:
			labels[RoleLabel] = word
		}
	}
	return labels
}

var targetKinds = map[string]TargetKind{
	"Mesh": WholeMesh, "Dataplane": Dataplane, "MeshSubset": MeshSubset, "MeshService": MeshService,
	"MeshServiceSubset": MeshServiceSubset,
}

func targetOf(words []string) Target {
	t := Target{Kind: targetKinds[words[0]]}
	labels := labelsOf(words[1:])
	t.Name, t.Namespace, t.Section = labels["name"], labels[resource.NamespaceLabel], labels["section"]
	delete(labels, "name")
	delete(labels, "section")
	delete(labels, resource.NamespaceLabel)
	if t.Kind > Dataplane {
		t.Tags = labels
	} else {
		t.Labels = labels
	}
	return t
}

// parseTo reads "MeshService b" as the display name b, and "MeshService env=dev section=http" as labels and a section.
func parseTo(words []string) *To {
	t := &To{Kind: toKinds[words[0]], Labels: map[string]string{}}
	for _, word := range words[1:] {
		switch name, value, found := strings.Cut(word, "="); {
		case !found:
			t.Labels[resource.DisplayName] = word
		case name == "section":
			t.Section = value
		default:
			t.Labels[name] = value
		}
	}
	return t
}

func parseMatch(words []string) Match {
	var m Match
	for _, word := range words {
		switch prefix, isPrefix := strings.CutSuffix(word, "*"); {
		case isPrefix:
			m.ID.Prefix = prefix
		case strings.HasPrefix(word, "spiffe:"):
			m.ID.Exact = word
		default:
			m.SNI = word
		}
	}
	return m
}

// parseDestination reads "b:http", and "r/b:http" for the requests of the route r.
func parseDestination(text string) *Destination {
	route, rest, isRoute := strings.Cut(text, "/")
	if !isRoute {
		rest = text
	}
	name, port, _ := strings.Cut(rest, ":")
	d := &Destination{Kind: ToMeshService, Labels: map[string]string{resource.DisplayName: name}}
	d.Sections = []string{port, map[string]string{"http": "8080", "grpc": "9090"}[port]}
	if name == "b1" || name == "b2" {
		d.Labels["env"] = "dev"
	}
	if name == "multi" {
		d.Kind = ToMeshMultiZoneService
	}
	if isRoute {
		d.Routes = []map[string]string{{resource.DisplayName: route}}
	}
	return d
}

// effective returns the merged conf for a request, and the names of the policies in ascending order:
//
//	to DESTINATION   traffic that the proxy sends
//	from SECTION CALLER   traffic that a section receives
//	proxy   the whole proxy
func (w *world) effective(t testing.TB, p *Proxy, request string) (string, string) {
	words := strings.Fields(request)
	var parts []Part
	switch words[0] {
	case "to":
		parts = Outbound(w.applying(p, ""), parseDestination(words[1]))
	case "from":
		caller := parseMatch(words[2:])
		for _, m := range Inbound(w.applying(p, words[1])) {
			if m.Match.covers(caller) {
				parts = m.Parts
				break
			}
		}
	case "proxy":
		parts = w.applying(p, "")
	}
	merged := plan.Merge(parts)
	text, err := json.Marshal(merged.Conf)
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, origin := range merged.Parts {
		by = append(by, origin.Policy.Name)
	}
	return string(text), strings.Join(by, " ")
}

var plan = func() *Plan {
	p, err := NewPlan(&conf{})
	if err != nil {
		panic(err)
	}
	return p
}()

// web is the proxy of the examples.
func web(labels ...string) *Proxy {
	return &Proxy{
		Name: "web-1", Zone: "east",
		Labels: labelsOf(append([]string{"app=web", "team=shop", "env=prod", "ns=a"}, labels...)),
		Sections: []Section{
			{Name: "http", Tags: map[string]string{"kuma.io/service": "web", "version": "v1"}},
			{Name: "admin", Tags: map[string]string{"kuma.io/service": "web-admin", "version": "v1"}},
		},
	}
}

func (o Origins) String() string {
	var b strings.Builder
	for path, origin := range o.All() {
		fmt.Fprintf(&b, "%s %s[%d]\n", path, origin.Policy.Name, origin.Part)
	}
	return b.String()
}
