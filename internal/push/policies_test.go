package push

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/admission"
	"weft/internal/agent"
	"weft/internal/envoy"
	"weft/internal/envoy/envoytest"
	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/schema/schematest"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

var (
	admittedPolicies = flag.Int("policies", 150,
		"the number of admitted policies that TestAdmittedPoliciesAreAccepted evaluates")
	policySeed = flag.Uint64("policy-seed", 1,
		"the seed of the policies that TestAdmittedPoliciesAreAccepted draws")
)

// TestAdmittedPoliciesAreAccepted draws policies of every kind, some with extreme values. A policy is rejected with an
// error of its user, or its configuration is generated for every proxy of two zones, accepted by a real Envoy, and run
// by one at little cost. An admitted policy is read and written without loss.
func TestAdmittedPoliciesAreAccepted(t *testing.T) {
	w := newPolicyWorld(t)
	drawn, failed := 0, 0
	byKind := map[string]int{}
	for n := 0; n < *admittedPolicies && failed < maxFailures; {
		// One to three policies of a kind apply together: each is valid, and their merged conf may not be.
		of := kind.Policies()[w.rand.IntN(len(kind.Policies()))]
		c := &policyCase{kind: of}
		w.drawing.Extreme = w.rand.IntN(4) == 0 && of != kind.MeshProxyPatches // whose values are documents of Envoy
		trial := w.writer().Trial()
		for i := range 1 + w.rand.IntN(3)*w.rand.IntN(2) {
			drawn++
			p, err := w.admit(trial, of, fmt.Sprint("drawn-", i))
			if err != nil {
				failed++
				t.Error(err)
				continue
			}
			if p != nil {
				c.policies = append(c.policies, p)
			}
		}
		n += len(c.policies)
		byKind[of.Describe().Name] += len(c.policies)
		if err := w.evaluate(c); err != nil {
			failed++
			t.Error(err)
		}
		if len(w.pending) >= batchSize {
			failed += w.validate(t)
		}
	}
	w.validate(t)
	for _, of := range kind.Policies() {
		if name := of.Describe().Name; byKind[name] == 0 && *admittedPolicies >= 150 {
			t.Errorf("of %d drawn policies, no %s is admitted", drawn, name)
		}
	}
	t.Logf("drawn: %d; admitted: %v; %d resources validated", drawn, byKind, len(w.seen))
}

const (
	maxFailures = 10
	batchSize   = 500 // resources in one start of Envoy
	maxRepairs  = 15  // attempts to make a drawn policy valid
)

// policyWorld is a mesh in two zones without drawn policies.
type policyWorld struct {
	rand    *rand.Rand
	drawing *schematest.Drawing
	envoy   *envoytest.Envoy
	global  *admission.Writer
	zone    *admission.Writer // of the first zone
	zones   []*policyZone
	seen    map[string]bool // versions of resources that are validated, or pending
	pending []*xds.Resource
	cases   map[*xds.Resource]*policyCase // from which the pending resources are generated
}

// policyZone is one of its zones.
type policyZone struct {
	name    string
	rows    []resource.Any // without drawn policies
	config  *config
	proxies []state.ProxyKey
	sent    table.Derived[state.ProxyKey, []*xds.Resource] // pinned for each proxy
	drawn   []resource.Key                                 // policies that are there
}

// policyCase is the policies that apply together.
type policyCase struct {
	kind     kind.Policy
	policies []*drawnPolicy
}

// drawnPolicy is an admitted policy.
type drawnPolicy struct {
	document   map[string]any
	object     resource.Any
	fromGlobal bool
}

func (c *policyCase) String() string {
	var b strings.Builder
	for _, p := range c.policies {
		text, err := yaml.Marshal(p.document)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "---\n%s", text)
	}
	return b.String()
}

func newPolicyWorld(t *testing.T) *policyWorld {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/policies/world.txtar")
	if err != nil {
		t.Fatal(err)
	}
	w := &policyWorld{rand: rand.New(rand.NewPCG(*policySeed, 1)), drawing: schematest.NewDrawing(*policySeed),
		envoy: envoytest.New(t, agent.RuntimeFlags()), seen: map[string]bool{},
		cases: map[*xds.Resource]*policyCase{}}
	w.drawing.Names = []string{"backend", "backend", "web", "api", "audit", "database", "reports", "shop", "captured",
		"egress", "ingress", "http", "grpc", "tcp", "8080", "80", "absent"}
	w.drawing.Labels = [][2]string{{"app", "shop"}, {"app", "backend"}, {"kuma.io/display-name", "backend"},
		{"kuma.io/display-name", "reports"}, {"kuma.io/display-name", "api"}, {"kuma.io/zone", "west"},
		{"kuma.io/zone", "east"}, {"version", "v2"}, {"kuma.io/workload", "shop"}, {"kuma.io/origin", "zone"}}
	examples, err := filepath.Glob("../../examples/kinds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range examples {
		w.learn(t, path)
	}
	for i, name := range []string{"east", "west"} {
		var rows []resource.Any
		for _, section := range []string{"common", "east", "west"} {
			for _, document := range resource.SplitYAML([]byte(golden.Section(archive, section+".yaml"))) {
				if o := rowIn(row(t, document.Text), section, name); o != nil {
					rows = append(rows, o)
				}
			}
		}
		w.zones = append(w.zones, newPolicyZone(name, rows))
		if i == 0 {
			w.zone = writerOf(t, name, rows)
			w.global = writerOf(t, "", rows)
		}
	}
	return w
}

// learn makes the values of an example known.
func (w *policyWorld) learn(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range resource.SplitYAML(text) {
		var fields map[string]any
		if err := yaml.Unmarshal(document.Text, &fields); err != nil {
			t.Fatal(err)
		}
		w.drawing.Learn(fields)
	}
}

// endpointsOfEach is the number of endpoints that clusters with health checks have for [envoytest.Envoy.Costly]: that
// of the services of the world.
const endpointsOfEach = 2

// rowIn returns a resource of a zone, or of both (common), as a zone has it; nil: it has none.
func rowIn(o resource.Any, of, zone string) resource.Any {
	info := kind.ByName(o.Key().Kind).Describe()
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
		kind.VouchOperator(nil, dp)
	}
	if of == zone || of == "common" {
		return o
	}
	if !info.Sync.Has(resource.ZoneToGlobal) || info.Name == kind.Dataplanes.Name || info.Hidden &&
		info.Name != kind.MeshZoneAddresses.Name {
		return nil
	}
	meta := o.Envelope()
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	meta.Labels[kind.DisplayName] = meta.Name
	meta.Name = kind.SyncedName(info, meta.Mesh, meta.Name, kind.OwnerOf(meta))
	return o
}

// writerOf returns a writer over the rows of a zone.
func writerOf(t *testing.T, zone string, rows []resource.Any) *admission.Writer {
	t.Helper()
	s := memory.New(memory.Options{})
	t.Cleanup(func() { s.Close() })
	for _, o := range rows {
		body, err := resource.Body(o)
		if err == nil {
			_, err = s.Create(t.Context(), store.Row{Key: o.Key(), Body: body})
		}
		if err != nil {
			t.Fatalf("%s: %v", o.Key(), err)
		}
	}
	return admission.New(s, admission.Options{Zone: zone, Joined: zone != "", Patches: envoy.TypeNames(nil)})
}

func newPolicyZone(name string, rows []resource.Any) *policyZone {
	z := &policyZone{name: name, rows: rows}
	for _, o := range rows {
		switch o := o.(type) {
		case *resource.Object[kind.Dataplane]:
			z.proxies = append(z.proxies, state.ProxyKey{Mesh: o.Mesh, Name: o.Name})
		case *resource.Object[kind.ZoneEgress]:
			z.proxies = append(z.proxies, state.ZoneEgressProxy(o.Name))
		}
	}
	z.build()
	return z
}

// build makes the tables of the zone, without drawn policies.
func (z *policyZone) build() {
	g := graph.NewState(z.name)
	g.Tables.DB.Clock = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	z.config, z.drawn = newConfig(g), nil
	sent := func(r *table.Reader, key state.ProxyKey) []*xds.Resource {
		resources, _ := configOf(z.config, r, key)
		return resources
	}
	z.sent = table.NewDerived(g.Tables.DB, "sent to a proxy", sent, sameResources)
	g.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range z.rows {
			g.Tables.Put(tx, o)
		}
	})
	for _, key := range z.proxies {
		z.sent.Pin(key)
	}
}

// writer returns the writer of the first zone or of global.
func (w *policyWorld) writer() *admission.Writer {
	if w.rand.IntN(3) == 0 {
		return w.global
	}
	return w.zone
}

// admit draws a policy and admits it, after repairs by the problems of its rejections; nil: it is not made valid. It
// fails where a rejection is not an error of the user.
func (w *policyWorld) admit(trial *admission.Trial, of kind.Policy, name string) (*drawnPolicy, error) {
	document := w.drawing.Document(of, mesh, name)
	if w.drawing.Extreme {
		aboutEverything(of, document)
	}
	for range maxRepairs {
		text, err := w.written(document)
		if err != nil {
			return nil, err
		}
		o, err := put1(trial, text)
		if err == nil {
			w.drawing.Learn(document)
			if err := readsBack(trial, o); err != nil {
				return nil, fmt.Errorf("%w\nof\n%s", err, text)
			}
			return &drawnPolicy{document, o, trial.Zone() == ""}, nil
		}
		var rejected *resource.Error
		if !errors.As(err, &rejected) || rejected.Code == resource.Internal || rejected.Code == resource.Unavailable {
			return nil, fmt.Errorf("the rejection is no error of the user: %w\nof\n%s", err, text)
		}
		repaired := false
		for _, problem := range rejected.Problems {
			repaired = w.drawing.Repair(of, document, problem) || repaired
		}
		if !repaired {
			return nil, nil
		}
	}
	return nil, nil
}

// aboutEverything has a policy apply to all proxies and, unless it is a route, to all destinations: what does not apply
// costs nothing.
func aboutEverything(of kind.Policy, document map[string]any) {
	spec, _ := document["spec"].(map[string]any)
	delete(spec, "targetRef")
	to, _ := spec["to"].([]any)
	for _, item := range to {
		item, ok := item.(map[string]any)
		switch {
		case !ok:
		case of == kind.MeshHTTPRoutes, of == kind.MeshTCPRoutes:
			item["targetRef"] = map[string]any{"kind": "MeshService", "name": "backend"}
		default:
			item["targetRef"] = map[string]any{"kind": "Mesh"}
		}
	}
}

// written returns a document in JSON or YAML. YAML cannot have every character.
func (w *policyWorld) written(document map[string]any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err == nil && w.rand.IntN(2) == 0 {
		if inYAML, err := yaml.JSONToYAML(text); err == nil {
			return inYAML, nil
		}
	}
	return text, err
}

// put1 reads and writes a document. A panic is an error.
func put1(trial *admission.Trial, text []byte) (o resource.Any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	written, err := kind.Parse(text)
	if err != nil {
		return nil, err
	}
	result, err := trial.Put(context.Background(), written.Object, admission.Change{})
	if err != nil {
		return nil, err
	}
	return result.Object, nil
}

// readsBack writes a stored policy in each form and reads it: it is the same, and a write of it changes nothing.
func readsBack(trial *admission.Trial, o resource.Any) error {
	d := kind.ByName(o.Key().Kind)
	for _, form := range []resource.Form{resource.Universal, resource.Kubernetes} {
		document, err := resource.MarshalJSON(o, nil, d, form)
		if err != nil {
			return err
		}
		inYAML, err := yaml.JSONToYAML(resource.AsYAML(document))
		if err != nil {
			return err
		}
		for _, text := range [][]byte{document, inYAML} {
			read, err := kind.Parse(text)
			if err != nil {
				return fmt.Errorf("a stored policy cannot be read: %w\n%s", err, text)
			}
			result, err := trial.Put(context.Background(), read.Object, admission.Change{})
			if err != nil || result.Changed {
				return fmt.Errorf("a stored policy is another one after it is read and written: %w\n%s", err, text)
			}
		}
		if err := schematest.Check(d, document); err != nil {
			return fmt.Errorf("a stored policy is invalid by its schema: %w", err)
		}
	}
	return nil
}

// evaluate generates the configuration of every proxy with the policies of a case, and adds the resources that differ
// from those without it to the pending ones.
func (w *policyWorld) evaluate(c *policyCase) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s\nof\n%s", p, debug.Stack(), c)
			for _, z := range w.zones {
				z.build() // a commit that panicked leaves its tables unusable
			}
		}
	}()
	for _, z := range w.zones {
		for _, r := range z.with(c) {
			if key := r.Type.String() + r.Version; !w.seen[key] {
				w.seen[key] = true
				w.pending = append(w.pending, r)
				w.cases[r] = c
			}
		}
	}
	return nil
}

// with returns the resources of all proxies of the zone with the policies of a case.
func (z *policyZone) with(c *policyCase) []*xds.Resource {
	tables := z.config.state.Tables
	tables.DB.Commit(func(tx *table.Tx) {
		for _, key := range z.drawn {
			tables.Remove(tx, key)
		}
		z.drawn = nil
		for _, p := range c.policies {
			o := resource.Clone(p.object)
			meta := o.Envelope()
			switch {
			case p.fromGlobal:
				meta.Name = kind.SyncedName(c.kind.Describe(), meta.Mesh, meta.Name, kind.OwnerOf(meta))
			case meta.Label(kind.ZoneLabel) != z.name:
				continue
			}
			tables.Put(tx, o)
			z.drawn = append(z.drawn, o.Key())
		}
	})
	var all []*xds.Resource
	for _, key := range z.proxies {
		resources, _ := z.sent.Value(key)
		if len(resources) == 0 {
			panic(fmt.Sprintf("%s has no configuration", key))
		}
		all = append(all, resources...)
	}
	return all
}

// validate has Envoy validate the pending resources, and returns the number of cases that it rejects.
func (w *policyWorld) validate(t *testing.T) int {
	t.Helper()
	pending := w.pending
	w.pending = nil
	reported := map[*policyCase]bool{}
	rejections, err := w.envoy.Rejections(pending)
	if err != nil {
		t.Fatal(err)
	}
	for _, rejection := range rejections {
		c := w.cases[rejection.Resource]
		if !reported[c] {
			t.Errorf("Envoy rejects the %s %s: %s\nof\n%s", rejection.Resource.Type, rejection.Resource.Name,
				rejection.Reason, w.smallest(c, rejection.Resource))
		}
		reported[c] = true
	}
	if len(rejections) > 0 {
		return len(reported)
	}
	costly, err := w.envoy.Costly(pending, endpointsOfEach)
	if err != nil {
		t.Fatal(err)
	}
	for _, rejection := range costly {
		c := w.cases[rejection.Resource]
		if !reported[c] {
			t.Errorf("the %s %s costs a proxy too much: %s\nof\n%s", rejection.Resource.Type, rejection.Resource.Name,
				rejection.Reason, c)
		}
		reported[c] = true
	}
	for _, r := range pending {
		delete(w.cases, r)
	}
	return len(reported)
}

// smallest returns a case with the fewest policies of which Envoy rejects a resource of a name and a type.
func (w *policyWorld) smallest(c *policyCase, r *xds.Resource) *policyCase {
	for i := 0; i < len(c.policies) && len(c.policies) > 1; {
		fewer := &policyCase{c.kind, slices.Delete(slices.Clone(c.policies), i, i+1)}
		if !w.rejects(fewer, r) {
			i++
			continue
		}
		c = fewer
	}
	return c
}

// rejects reports whether Envoy rejects a resource of a type and a name with the policies of a case.
func (w *policyWorld) rejects(c *policyCase, like *xds.Resource) bool {
	var same []*xds.Resource
	for _, z := range w.zones {
		for _, r := range z.with(c) {
			if r.Type == like.Type && r.Name == like.Name {
				same = append(same, r)
			}
		}
	}
	rejections, err := w.envoy.Rejections(same)
	return err == nil && len(rejections) > 0
}
