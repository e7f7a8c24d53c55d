package migrate

import (
	"fmt"
	"slices"

	"weft/kind"
)

// receivedKinds are the kinds whose `from` says how callers are limited, or what faults they get.
var receivedKinds = []string{kind.MeshRateLimits.Name, kind.MeshFaultInjections.Name}

// received writes `from` by service of the policies about received traffic as rules with the SPIFFE IDs of the callers.
// In Kuma a later item decides over an earlier one; of rules the most specific match does, and faults of each inject.
// An item is left out where that makes a difference.
func (t *translation) received() {
	for _, o := range t.objects {
		if slices.Contains(receivedKinds, o.kind) && !o.whole() && o.spec()["rules"] == nil {
			t.rulesOfFrom(o)
		}
	}
}

// caller is an item of `from` of a policy about received traffic.
type caller struct {
	at     string // its field
	client client
	conf   any
}

func (t *translation) rulesOfFrom(o *object) {
	var callers []caller
	byService := false
	for i, item := range list(o.spec()["from"]) {
		ref := mapping(item)["targetRef"]
		c := caller{fmt.Sprintf("spec.from[%d]", i), clientOf(mapping(ref)), mapping(item)["default"]}
		if problem := malformed(ref); problem != "" {
			c.client = client{problem: "targetRef" + problem, unknown: true}
		}
		byService = byService || !c.client.any
		callers = append(callers, c)
	}
	if !byService {
		return // weft reads it as it is
	}
	var rules []any
	for i, c := range callers {
		if reason, advice := t.inexpressible(o, callers, i); reason != "" {
			o.omit(c.at, reason, advice)
			continue
		}
		rule := map[string]any{"default": c.conf}
		if !c.client.any {
			rule["matches"] = []any{c.client.match(o.mesh)}
		}
		rules = append(rules, rule)
	}
	delete(o.spec(), "from")
	o.spec()["rules"] = rules
	if len(rules) == 0 {
		o.omit("", "nothing is left of it", "write `rules` with the SPIFFE IDs of the callers")
	}
}

// inexpressible returns why no rule says the same as an item of `from`, and what to do; empty: one does.
func (t *translation) inexpressible(o *object, callers []caller, i int) (reason, advice string) {
	const byID = "write a rule with the SPIFFE IDs of the callers"
	c := callers[i]
	for _, later := range callers[i+1:] {
		switch {
		case later.client.covers(c.client) && !c.client.any:
			return fmt.Sprintf("%s is about its callers too, and decides over it in Kuma", later.at),
				"write the one of the two that is to hold"
		case c.client.any && !later.client.any && o.kind == kind.MeshFaultInjections.Name:
			return fmt.Sprintf("%s takes callers from it in Kuma, and in weft each rule that matches injects its "+
				"faults", later.at), "write a rule for each other caller"
		}
	}
	if c.client.any {
		return "", ""
	}
	if c.client.problem != "" {
		return c.client.problem, byID
	}
	if reason := t.anonymous(o.mesh); reason != "" {
		return reason, byID + ", once they have one"
	}
	for _, other := range t.objects {
		if other != o && other.kind == o.kind && other.mesh == o.mesh && !other.whole() && other.copyOf == "" &&
			meet(o.spec()["targetRef"], other.spec()["targetRef"]) {
			return fmt.Sprintf("%s may decide over it in Kuma, and in weft the rule of a single service decides",
				other), byID + " in one policy with the confs of the other"
		}
	}
	return "", ""
}

// anonymous returns why the callers of a mesh are not known by the SPIFFE IDs spiffe://MESH/SERVICE; empty: they are.
// Kuma knows a caller by a header with its tags.
func (t *translation) anonymous(mesh string) string {
	m := t.meshes[mesh]
	switch {
	case m == nil:
		return "the Mesh is not in the export, which says whether its mtls gives callers SPIFFE IDs"
	case text(mapping(m.spec()["mtls"])["enabledBackend"]) == "":
		return "the Mesh has no enabled backend of mtls, without which a caller has no SPIFFE ID"
	}
	for _, o := range t.objects {
		if o.kind == kind.MeshIdentities.Name && o.mesh == mesh {
			return fmt.Sprintf("callers that %s selects have other SPIFFE IDs than those of mtls", o)
		}
	}
	return ""
}

// meet returns whether one inbound may be of two targets.
func meet(a, b any) bool {
	pairsOf := func(ref map[string]any) (tags, labels map[string]any) {
		tags, labels = map[string]any{}, mapping(ref["labels"])
		for name, value := range mapping(ref["tags"]) {
			tags[name] = value
		}
		if of := text(ref["kind"]); of == kind.MeshServices.Name || of == "MeshServiceSubset" {
			tags[kind.ServiceTag] = text(ref["name"])
		}
		return tags, labels
	}
	tags, labels := pairsOf(mapping(a))
	otherTags, otherLabels := pairsOf(mapping(b))
	return !conflict(tags, otherTags) && !conflict(labels, otherLabels)
}
