package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
)

// rank orders targets by how specific they are to Kuma: a policy of a higher rank decides over one of a lower rank.
type rank int

const (
	unranked rank = iota // its place in the order is not known
	wholeMesh
	dataplane
	meshSubset
	meshGateway
	meshService
	meshServiceSubset
	meshHTTPRoute
)

// ranks are the ranks by the kind of a target.
var ranks = map[string]rank{
	"Mesh": wholeMesh, "Dataplane": dataplane, "MeshSubset": meshSubset, "MeshGateway": meshGateway,
	"MeshService": meshService, "MeshServiceSubset": meshServiceSubset, "MeshHTTPRoute": meshHTTPRoute,
}

// target is which proxies, or inbounds of them, a policy selects.
type target struct {
	rank rank
	// namespace is the one whose proxies alone the policy selects; empty: those of every namespace
	namespace  string
	namespaced bool           // it has one, even if the export does not say which
	none       bool           // it selects no proxy that weft has
	tags       map[string]any // of the inbounds
	labels     map[string]any // of the Dataplanes
	name       string         // of the one Dataplane; empty for any
	section    string         // name or port of an inbound
	ref        map[string]any // the same in weft; valid without a problem
	changed    bool           // ref is another one than was written
	problem    string         // why weft cannot select the same
	advice     string
}

// meets returns whether one inbound may be of both targets.
func (t target) meets(other target) bool {
	if t.none || other.none || t.name != "" && other.name != "" && t.name != other.name ||
		t.namespace != "" && other.namespace != "" && t.namespace != other.namespace {
		return false
	}
	return !conflict(t.tags, other.tags) && !conflict(t.labels, other.labels)
}

// conflict returns whether no object has both sets of pairs. A value that is not a string may be any value.
func conflict(a, b map[string]any) bool {
	for name, value := range a {
		one, known := value.(string)
		if other, ok := b[name].(string); ok && known && one != other {
			return true
		}
	}
	return false
}

// covers returns whether every inbound of another target is one of this target.
func (t target) covers(other target) bool {
	if t.namespace != "" && t.namespace != other.namespace {
		return false
	}
	switch t.rank {
	case wholeMesh:
		return true
	case meshSubset, meshService, meshServiceSubset:
		return len(t.tags) == 0 || t.rank == other.rank && len(t.tags) == len(other.tags) && subset(t.tags, other.tags)
	}
	return false
}

func subset(a, b map[string]any) bool {
	for name, value := range a {
		if other, ok := b[name]; !ok || text(value) != text(other) {
			return false
		}
	}
	return true
}

// targetOf reads the target of a permission.
func (t *translation) targetOf(o *object) target {
	ref := mapping(o.spec()["targetRef"])
	read := t.readTarget(o, ref)
	if problem := malformed(o.spec()["targetRef"]); problem != "" {
		read = target{problem: "spec.targetRef" + problem, advice: "correct the document"}
	}
	namespace, ok := o.ofNamespace()
	read.namespace, read.namespaced = namespace, ok
	if ok && !t.kubernetes {
		read.problem, read.advice = ofNamespaceAlone(namespace), namespaceAdvice
	}
	o.target = &read
	return read
}

// malformed returns the part of a targetRef with another type than Kuma's; empty: none.
func malformed(ref any) string {
	fields, isMapping := ref.(map[string]any)
	if ref != nil && !isMapping {
		return " is not a mapping"
	}
	for _, field := range []string{"tags", "labels"} {
		if fields[field] != nil && mapping(fields[field]) == nil {
			return "." + field + " is not a mapping"
		}
	}
	if fields["proxyTypes"] != nil && list(fields["proxyTypes"]) == nil {
		return ".proxyTypes is not a list"
	}
	return ""
}

func (t *translation) readTarget(o *object, ref map[string]any) target {
	read := target{ref: map[string]any{"kind": "Dataplane"}, changed: true}
	if types := list(ref["proxyTypes"]); len(types) > 0 && !slices.Contains(types, any("Sidecar")) {
		read.none, read.problem, read.advice = true, "it selects gateways alone, which weft does not have",
			"leave it out"
		return read
	}
	read.tags = mapping(ref["tags"])
	of := cmp.Or(text(ref["kind"]), "Mesh")
	read.rank = ranks[of]
	switch of {
	case "Mesh":
		if _, from := o.spec()["from"]; !from {
			read.ref, read.changed = map[string]any{"kind": "Mesh"}, ref["proxyTypes"] != nil
		}
		if len(read.tags) > 0 {
			read.tags = nil
			read.problem, read.advice = "targetRef.tags goes with MeshSubset, and the kind is Mesh",
				"write a targetRef {kind: Dataplane, labels: ...}"
		}
		return read
	case "MeshSubset":
	case "MeshService", "MeshServiceSubset":
		tags := maps.Clone(read.tags)
		if tags == nil {
			tags = map[string]any{}
		}
		tags[kind.ServiceTag] = text(ref["name"])
		read.tags = tags
	case "Dataplane":
		return t.dataplaneTarget(ref, read)
	default:
		read.tags = nil
		read.problem, read.advice = fmt.Sprintf("targetRef.kind %q selects nothing that weft has", of),
			"write a targetRef {kind: Dataplane, labels: ...}"
		return read
	}
	if len(read.tags) == 0 {
		return read
	}
	t.byLabels(o, &read)
	return read
}

// dataplaneTarget reads a target that weft has too.
func (t *translation) dataplaneTarget(ref map[string]any, read target) target {
	read.ref = maps.Clone(ref)
	delete(read.ref, "proxyTypes")
	read.changed = ref["proxyTypes"] != nil
	read.name, read.labels, read.section = text(ref["name"]), mapping(ref["labels"]), text(ref["sectionName"])
	switch {
	case len(read.tags) > 0:
		read.tags = nil
		read.problem, read.advice = "targetRef.tags is not served by this release",
			"use labels, which are those of the Dataplanes"
	case text(ref["namespace"]) != "" && !t.kubernetes:
		read.name = ""
		read.problem, read.advice = "targetRef.namespace selects Pods", namespaceAdvice
	}
	if read.labels[kind.ProxyTypeLabel] == "sidecar" { // every proxy is one
		read.labels = maps.Clone(read.labels)
		delete(read.labels, kind.ProxyTypeLabel)
		read.ref["labels"], read.changed = read.labels, true
		if len(read.labels) == 0 {
			delete(read.ref, "labels")
		}
	}
	if reason := t.impossiblePair(read.labels); reason != "" {
		read.problem, read.advice = "spec.targetRef.labels selects "+reason, t.selectorAdvice()
	}
	return read
}

// workload is the part of a Dataplane that identifies the proxies of its mesh.
type workload struct {
	labels   map[string]any
	inbounds []inboundTags
}

type inboundTags struct {
	name string
	tags map[string]any
}

// workloads are the Dataplanes of a mesh.
func (t *translation) workloads(mesh string) []workload {
	if known, ok := t.byMesh[mesh]; ok {
		return known
	}
	all := []workload{}
	for _, o := range t.objects {
		if o.kind != kind.Dataplanes.Name || o.mesh != mesh {
			continue
		}
		w := workload{labels: maps.Clone(o.labels)}
		for _, label := range computedLabels {
			if label != kind.NamespaceLabel || !t.kubernetes {
				delete(w.labels, label) // it has another value in weft, or none
			}
		}
		for _, item := range list(mapping(o.spec()["networking"])["inbound"]) {
			in := mapping(item)
			if text(in["state"]) != string(kind.Ignored) {
				w.inbounds = append(w.inbounds, inboundTags{cmp.Or(text(in["name"]), fmt.Sprint(in["port"])),
					mapping(in["tags"])})
			}
		}
		all = append(all, w)
	}
	t.byMesh[mesh] = all
	return all
}

// serviceLabels are labels that often have the value of the tag kuma.io/service.
var serviceLabels = []string{kind.WorkloadLabel, "app", "app.kubernetes.io/name"}

// byLabels writes a target of tags as one of labels, where the Dataplanes of the export show that both select the same
// inbounds.
func (t *translation) byLabels(o *object, read *target) {
	all := t.workloads(o.mesh)
	for _, labels := range candidates(read.tags, all) {
		if section, same := selectsSame(labels, read.tags, all); same {
			read.ref = map[string]any{"kind": "Dataplane", "labels": labels}
			if section != "" {
				read.ref["sectionName"] = section
			}
			o.note(Adapted, "spec.targetRef",
				fmt.Sprintf("selects the tags %s, and now the labels %s, which the same Dataplanes of the export have",
					pairs(read.tags), pairs(labels)), "")
			return
		}
	}
	if reason := t.impossiblePair(read.tags); reason != "" {
		read.problem, read.advice = "spec.targetRef.tags selects "+reason, t.selectorAdvice()
		return
	}
	protocol := text(read.tags[kind.ProtocolTag])
	if reason := t.protocolProblem(o.mesh, protocol); reason != "" {
		read.problem, read.advice = "spec.targetRef.tags "+reason, protocolAdvice
		return
	}
	read.ref = maps.Clone(mapping(o.spec()["targetRef"]))
	delete(read.ref, "proxyTypes")
	read.changed = mapping(o.spec()["targetRef"])["proxyTypes"] != nil
	if protocol != "" && protocol != "*" && protocol != servedAs(protocol) {
		tags := maps.Clone(mapping(read.ref["tags"]))
		tags[kind.ProtocolTag] = servedAs(protocol)
		read.ref["tags"], read.changed = tags, true
	}
	o.note(Adapted, "spec.targetRef", fmt.Sprintf("selects inbounds by the tags %s, a form that is deprecated",
		pairs(read.tags)), "give these Dataplanes a label of their own, and write a targetRef {kind: Dataplane, "+
		"labels: ...}")
}

// candidates are labels that may say the same as tags.
func candidates(tags map[string]any, all []workload) []map[string]any {
	base := maps.Clone(tags)
	delete(base, kind.ServiceTag)
	if len(base) == len(tags) {
		return []map[string]any{base}
	}
	var found []map[string]any
	for _, name := range serviceLabels {
		for _, w := range all {
			if value := text(w.labels[name]); value != "" && w.count(tags) > 0 {
				labels := maps.Clone(base)
				labels[name] = value
				found = append(found, labels)
				break
			}
		}
	}
	return found
}

// count is how many inbounds have tags.
func (w workload) count(tags map[string]any) (n int) {
	for _, in := range w.inbounds {
		if subset(tags, in.tags) {
			n++
		}
	}
	return n
}

// selectsSame returns whether labels, with the name of an inbound if there is one, select exactly the inbounds that
// have tags. There must be at least one such inbound.
func selectsSame(labels, tags map[string]any, all []workload) (section string, same bool) {
	some, parts := false, false
	for _, w := range all {
		matched := w.count(tags)
		if (matched > 0) != subset(labels, w.labels) {
			return "", false
		}
		some = some || matched > 0
		parts = parts || matched > 0 && matched < len(w.inbounds)
	}
	if !some || !parts {
		return "", some
	}
	for _, w := range all {
		for _, in := range w.inbounds {
			if subset(tags, in.tags) {
				if section == "" {
					section = in.name
				}
				if in.name != section {
					return "", false
				}
			}
		}
	}
	for _, w := range all {
		for _, in := range w.inbounds {
			if in.name == section && subset(labels, w.labels) && !subset(tags, in.tags) {
				return "", false
			}
		}
	}
	return section, true
}

// pairs writes a mapping as {a: b}, sorted.
func pairs(m map[string]any) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, name+": "+text(m[name]))
	}
	return "{" + strings.Join(texts, ", ") + "}"
}
