package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/kind"
)

// permission is a MeshTrafficPermission with `from`.
//
// Of all entries of `from` that match a caller, the last decides: entries of a policy in their order, policies from the
// least to the most specific target. A caller that no entry matches is denied. In `rules` deny goes over allow,
// whatever the order. An entry with Deny therefore
//
//   - is left out, with the same meaning, where nothing before it allows one of its callers;
//   - becomes a deny, with the same meaning, where nothing after it allows one of its callers;
//   - otherwise rules out what is allowed before it, which is omitted.
type permission struct {
	o       *object
	target  target
	entries []*entry
}

// verdict is the action of an entry.
type verdict string

const (
	allow  verdict = "allow"
	shadow verdict = "allowWithShadowDeny"
	deny   verdict = "deny"
)

// actions are the verdicts by Kuma's names, of the present releases and of the first ones.
var actions = map[string]verdict{
	"Allow": allow, "AllowWithShadowDeny": shadow, "Deny": deny,
	"ALLOW": allow, "ALLOW_WITH_SHADOW_DENY": shadow, "DENY": deny,
}

// entry is one entry of `from`.
type entry struct {
	of      *permission
	index   int
	verdict verdict
	client  client
	gone    bool // omitted, or without effect
	kept    bool // a deny that is written
}

func (e *entry) field() string { return fmt.Sprintf("spec.from[%d]", e.index) }

// omit leaves an entry out.
func (e *entry) omit(reason, advice string) {
	e.gone = true
	e.of.o.omit(e.field(), reason, advice)
}

// client is the callers that an entry matches.
type client struct {
	any     bool
	service string // the value of kuma.io/service
	problem string // why no SPIFFE ID is equivalent; empty: one is
	unknown bool   // the entry does not say which callers it matches
}

// meets returns whether one caller may be of both clients. A client that cannot be expressed may be any caller.
func (c client) meets(other client) bool {
	return c.any || other.any || c.problem != "" || other.problem != "" || c.service == other.service
}

// covers returns whether every caller of another client is one of this client.
func (c client) covers(other client) bool {
	return c.problem == "" && (c.any || other.problem == "" && !other.any && c.service == other.service)
}

// match is the client as a SPIFFE ID.
func (c client) match(mesh string) map[string]any {
	id := map[string]any{"type": "Exact", "value": "spiffe://" + mesh + "/" + c.service}
	if c.any {
		id = map[string]any{"type": "Prefix", "value": "spiffe://" + mesh + "/"}
	}
	return map[string]any{"spiffeID": id}
}

// permissions translates the permissions with `from` of every mesh.
func (t *translation) permissions() {
	byMesh := map[string][]*permission{}
	ruled := map[string][]target{} // targets of permissions with rules that allow
	snis := t.externalSNIs()
	var order []string
	for _, o := range t.objects {
		if o.kind != kind.MeshTrafficPermissions.Name || o.whole() && o.copyOf == "" {
			continue
		}
		spec := o.spec()
		from, has := spec["from"]
		entries, isList := from.([]any)
		switch hasRules := len(list(spec["rules"])) > 0; {
		case from != nil && !isList:
			o.omit("", "spec.from is not a list", "correct the document")
			continue
		case len(entries) > 0 && hasRules:
			o.omit("", "it has `from` and `rules`, which this release does not join", "write all of it as `rules`")
			continue
		case hasRules:
			delete(spec, "from") // it is empty
			if !o.namesCallers() {
				continue
			}
			if o.keepsSNIs(snis) && o.copyOf == "" {
				ruled[o.mesh] = append(ruled[o.mesh], t.targetOf(o))
			}
			continue
		case !has || len(entries) == 0:
			o.omit("", "it has neither `from` nor `rules`, and Kuma rejects it", "write the callers that it allows or "+
				"denies")
			continue
		}
		if byMesh[o.mesh] == nil {
			order = append(order, o.mesh)
		}
		byMesh[o.mesh] = append(byMesh[o.mesh], t.readPermission(o))
	}
	for _, mesh := range order {
		t.decide(mesh, byMesh[mesh], ruled[mesh])
	}
}

// namesCallers removes rules without a caller, which Kuma rejects. It returns false where no rule is left.
func (o *object) namesCallers() bool {
	var left []any
	for i, rule := range list(o.spec()["rules"]) {
		callers := mapping(mapping(rule)["default"])
		named := slices.ContainsFunc([]string{"deny", "allow", "allowWithShadowDeny"}, func(field string) bool {
			return callers[field] != nil && (list(callers[field]) == nil || len(list(callers[field])) > 0)
		})
		if named || mapping(rule) == nil {
			left = append(left, rule)
			continue
		}
		o.omit(fmt.Sprintf("spec.rules[%d]", i), "it names no caller, and Kuma rejects it",
			"write the callers that it allows or denies")
	}
	o.spec()["rules"] = left
	o.dropped = len(left) == 0
	return !o.dropped
}

func (t *translation) readPermission(o *object) *permission {
	p := &permission{o: o, target: t.targetOf(o)}
	o.permission = p
	if o.copyOf != "" {
		p.target.problem, p.target.advice = fmt.Sprintf("it is of zone %s alone", o.copyOf), "apply it in that zone"
	}
	for i, item := range list(o.spec()["from"]) {
		from := mapping(item)
		e := &entry{of: p, index: i, client: clientOf(mapping(from["targetRef"]))}
		if problem := malformed(from["targetRef"]); problem != "" {
			e.client = client{problem: "targetRef" + problem, unknown: true}
		}
		action := text(mapping(from["default"])["action"])
		known := false
		if e.verdict, known = actions[action]; !known {
			e.verdict, e.client = deny,
				client{problem: fmt.Sprintf("the action %q is not one of Allow, AllowWithShadowDeny, Deny", action)}
			o.omit(e.field()+".default.action", e.client.problem+", and Kuma rejects it", "write the action")
		} else if e.verdict == deny && e.client.unknown {
			o.omit(e.field()+".targetRef", e.client.problem, "correct the document")
		}
		p.entries = append(p.entries, e)
	}
	return p
}

// clientOf reads the callers that an entry matches. Under the mtls of a mesh a caller has the SPIFFE ID
// spiffe://MESH/SERVICE for each of its services, and nothing else is known of it.
func clientOf(ref map[string]any) client {
	tags := map[string]any{}
	for name, value := range mapping(ref["tags"]) {
		tags[name] = value
	}
	service := text(ref["name"])
	switch of := text(ref["kind"]); of {
	case "Mesh":
		if len(tags) > 0 {
			return client{problem: "targetRef.tags goes with MeshSubset, and the kind is Mesh", unknown: true}
		}
		return client{any: true}
	case "MeshSubset":
		if len(tags) == 0 {
			return client{any: true}
		}
		service = text(tags[kind.ServiceTag])
		delete(tags, kind.ServiceTag)
	case "MeshService", "MeshServiceSubset":
	default:
		return client{problem: fmt.Sprintf("no SPIFFE ID says the same as targetRef.kind %q", of), unknown: true}
	}
	switch {
	case len(tags) > 0:
		return client{service: service, problem: "the certificate of a caller has no tags beside its service"}
	case !servicePath(service):
		return client{problem: fmt.Sprintf("%q cannot stand in a SPIFFE ID of a service", service)}
	}
	return client{service: service}
}

// servicePath returns whether a service has a SPIFFE ID of its own.
func servicePath(service string) bool {
	return service != "" && service != "." && service != ".." && service != "zone-egress" &&
		service != "zone-ingress" &&
		strings.Trim(service, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// decide sets the outcome for each entry of a mesh.
func (t *translation) decide(mesh string, permissions []*permission, ruled []target) {
	if !t.enforced(mesh, permissions) {
		return
	}
	var entries []*entry
	for _, p := range permissions {
		entries = append(entries, p.entries...)
	}
	for _, e := range entries {
		e.expressible()
	}
	for _, e := range entries {
		if e.verdict == deny {
			e.override(entries)
		}
	}
	_, known := t.meshes[mesh]
	for _, e := range entries {
		if e.verdict == deny {
			e.resolve(entries, ruled, known, t.whole || e.of.o.copyOf != "")
		}
	}
}

// enforced returns whether Kuma enforces the permissions of a mesh by the SPIFFE IDs of its mtls.
func (t *translation) enforced(mesh string, permissions []*permission) bool {
	m, known := t.meshes[mesh]
	if !known {
		permissions[0].o.note(Adapted, "spec.from",
			fmt.Sprintf("the Mesh %s is not in the export, and callers are taken to have the SPIFFE IDs of its mtls, "+
				"spiffe://%s/SERVICE", mesh, mesh), "")
		return true
	}
	if text(mapping(m.spec()["mtls"])["enabledBackend"]) != "" {
		t.identities(mesh, permissions[0].o)
		return true
	}
	for _, p := range permissions {
		if p.o.copyOf != "" {
			continue
		}
		p.o.omit("", "the Mesh has no enabled backend of mtls, without which Kuma enforces no `from`",
			"write `rules` with the SPIFFE IDs of a MeshIdentity")
	}
	return false
}

// identities notes that Kuma does not apply `from` to callers with a MeshIdentity.
func (t *translation) identities(mesh string, first *object) {
	for _, o := range t.objects {
		if o.kind == kind.MeshIdentities.Name && o.mesh == mesh {
			first.note(Adapted, "spec.from",
				fmt.Sprintf("is about the SPIFFE IDs of mtls, and callers that %s selects have others", o),
				"allow them by `rules`")
			return
		}
	}
}

// expressible omits entries whose callers or proxies cannot be named.
func (e *entry) expressible() {
	switch problem := cmp.Or(e.of.target.problem, e.client.problem); {
	case e.verdict == deny, problem == "":
	case e.of.o.copyOf != "":
		e.gone = true // the control plane of that zone has it
	case e.of.target.problem != "":
		e.omit(e.of.target.problem, e.of.target.advice)
	default:
		e.omit(e.client.problem,
			"allow spiffe://"+e.of.o.mesh+"/SERVICE of each service that may call, or give the callers a "+
				"MeshIdentity whose path tells them apart")
	}
}

// override marks what a deny leaves without effect: every caller that is allowed before it.
func (e *entry) override(entries []*entry) {
	if e.of.target.problem != "" {
		return
	}
	for _, before := range entries {
		if before.verdict != deny && !before.gone && precedes(before, e) && e.client.covers(before.client) &&
			e.of.target.covers(before.of.target) {
			before.gone = true
			before.of.o.note(Skipped, before.field(), fmt.Sprintf("%s %s denies all of its callers", e.of.o, e.field()),
				"")
		}
	}
}

// resolve keeps a deny where `rules` can say it, and otherwise omits what it restricts. Where the Mesh is not in the
// export, or where the input is no whole export, permissions that the deny restricts may be missing too.
func (e *entry) resolve(entries []*entry, ruled []target, known, whole bool) {
	var restricted, exempt []*entry
	for _, other := range entries {
		if other.verdict == deny || other.gone || !e.client.meets(other.client) || !e.of.target.meets(other.of.target) {
			continue
		}
		if !precedes(e, other) {
			restricted = append(restricted, other)
		}
		if !precedes(other, e) {
			exempt = append(exempt, other)
		}
	}
	// Kuma denies nothing that rules allow by an entry for every caller.
	alsoRules := !e.client.any && slices.ContainsFunc(ruled, e.of.target.meets)
	problem := cmp.Or(e.of.target.problem, e.client.problem)
	switch {
	case len(restricted) == 0 && !alsoRules && !known && e.of.o.copyOf == "":
		e.omit("it denies callers that other permissions may allow, and the Mesh is not in the export, nor perhaps "+
			"they",
			"translate it with the Mesh and all of its permissions")
	case len(restricted) == 0 && !alsoRules && !whole && (problem != "" || len(exempt) > 0 || e.client.any):
		e.omit("it denies callers that other permissions may allow, and the input is not a whole export of kumactl",
			"translate the whole export; where no other permission of the mesh allows these callers, leave it out: "+
				"weft denies a caller that nothing allows")
	case len(restricted) == 0 && !alsoRules && (problem != "" || len(exempt) > 0 || e.client.any):
		e.gone = true
	case problem == "" && len(exempt) == 0:
		e.kept = true
	case problem == "" && alsoRules:
		e.kept = true
		for _, other := range exempt {
			other.omit(fmt.Sprintf("%s %s denies some of its callers, and in `rules` deny goes over allow", e.of.o,
				e.field()), "allow the callers by SPIFFE IDs that no deny matches")
		}
	default:
		e.gone = true
		for _, other := range restricted {
			other.omit(fmt.Sprintf("%s %s takes some of its callers or proxies away, which `rules` cannot say", e.of.o,
				e.field()), "allow the callers that remain, by SPIFFE ID, at the proxies that remain")
		}
		if alsoRules {
			e.of.o.omit(e.field(), cmp.Or(problem, "in `rules` deny goes over allow"),
				"write it as `rules` with the permissions of the mesh")
			e.of.o.unsaid = true
		}
	}
}

// precedes returns whether an entry is known to come before another, which then decides instead.
func precedes(a, b *entry) bool {
	if a.of == b.of {
		return a.index < b.index
	}
	x, y := a.of.target.rank, b.of.target.rank
	switch {
	case x == wholeMesh && y == wholeMesh && a.of.target.namespaced != b.of.target.namespaced:
		return b.of.target.namespaced && a.of.o.label(kind.OriginLabel) == b.of.o.label(kind.OriginLabel)
	case x == wholeMesh && y == wholeMesh:
		return a.of.sameLevel(b.of) && a.of.o.displayName() > b.of.o.displayName() // the first name decides
	case x == unranked || y == unranked:
		return false
	}
	return x < y
}

// sameLevel returns whether only their names order two policies for the whole mesh.
func (p *permission) sameLevel(other *permission) bool {
	return p.o.label(kind.OriginLabel) == other.o.label(kind.OriginLabel) &&
		p.o.label(roleLabel) == other.o.label(roleLabel)
}

func (o *object) displayName() string { return cmp.Or(o.label(kind.DisplayName), o.plainName()) }

// write replaces `from` by `rules`.
func (t *translation) write(p *permission) {
	lists := map[verdict][]any{}
	for _, e := range p.entries {
		if e.gone {
			continue
		}
		lists[e.verdict] = append(lists[e.verdict], e.client.match(p.o.mesh))
	}
	if len(lists) == 0 {
		p.o.dropped = true
		if !slices.ContainsFunc(p.o.notes, func(n Note) bool { return n.Outcome == Omitted }) {
			p.o.note(Skipped, "", "it allows no caller, and weft denies a caller that nothing allows", "")
		}
		return
	}
	defaults := map[string]any{}
	for verdict, callers := range lists {
		defaults[string(verdict)] = callers
	}
	p.o.fields["spec"] = map[string]any{"targetRef": p.target.ref, "rules": []any{map[string]any{"default": defaults}}}
}

// roleLabel distinguishes policies of the system namespace of Kubernetes.
const roleLabel = "kuma.io/policy-role"

// ofRules translates the target of a permission that has rules already.
func (o *object) ofRules() {
	if o.permission != nil {
		return
	}
	if o.target == nil {
		return
	}
	if o.target.problem != "" {
		o.omit("", o.target.problem, o.target.advice)
		return
	}
	if o.target.changed {
		o.spec()["targetRef"] = o.target.ref
	}
}

// denies returns whether a permission that is not translated denies callers that other permissions may allow. An
// unreadable permission counts as one that denies.
func (o *object) denies() bool {
	spec := o.spec()
	if o.permission == nil { // else the entries of `from` have restricted the others already
		if spec["from"] != nil && list(spec["from"]) == nil {
			return true
		}
		for _, item := range list(spec["from"]) {
			if verdict, known := actions[text(mapping(mapping(item)["default"])["action"])]; !known || verdict == deny {
				return true
			}
		}
	}
	for _, rule := range list(spec["rules"]) {
		if callers := mapping(mapping(rule)["default"])["deny"]; callers != nil &&
			(list(callers) == nil || len(list(callers)) > 0) {
			return true
		}
	}
	return false
}

// failClosed omits every permission of a mesh if one that denies is omitted, since the others would allow its callers.
// A permission without a mesh may be of any mesh.
func (t *translation) failClosed() {
	open := map[string]*object{}
	for _, o := range t.objects {
		if o.kind == kind.MeshTrafficPermissions.Name && open[o.mesh] == nil &&
			(o.unsaid || o.done == nil && o.denies()) {
			open[o.mesh] = o
		}
	}
	for _, o := range t.objects {
		if o.kind != kind.MeshTrafficPermissions.Name || o.done == nil {
			continue
		}
		if cause := cmp.Or(open[o.mesh], open[""]); cause != nil {
			o.done = nil
			o.omit("", fmt.Sprintf("%s denies callers and is not translated, so that this policy could allow them",
				cause), "translate that policy first")
		}
	}
}
