package migrate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weft/kind"
)

// TestEveryLossHasAReasonAndANextStep counts over the documents as users write them: translated whole, with a named
// loss, or not at all, and how many of them a control plane takes as they are. What is not translated has a reason, and
// what to do. Each of Kuma's older kinds is among the documents.
func TestEveryLossHasAReasonAndANextStep(t *testing.T) {
	counts := map[string]int{}
	kinds := map[string]bool{}
	for _, e := range exports(t) {
		if !strings.HasPrefix(e.name, "documents/") {
			continue
		}
		result, err := e.translate()
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		outcomes := map[string]string{} // by the object
		for _, n := range result.Notes {
			if n.Reason == "" || n.Outcome == Omitted && n.Advice == "" {
				t.Errorf("%s: %s: has no reason, or no next step", e.name, n)
			}
			switch {
			case n.Outcome == Omitted && (n.Field == "" || strings.HasSuffix(n.Advice, "the whole object is left out")):
				outcomes[n.Object] = "not at all"
			case n.Outcome == Skipped && n.Field == "":
				outcomes[n.Object] = "made by weft or by Kuma"
			case n.Outcome == Omitted && outcomes[n.Object] == "":
				outcomes[n.Object] = "with a named loss"
			}
		}
		documents := split("", string(e.archive.Files[0].Data))
		for _, document := range documents {
			fields, _ := decode(document.Text) // it was translated
			kinds[text(fields["type"])+text(fields["kind"])] = true
			if written, err := kind.Parse(document.Text); err == nil && len(kind.NewProblems(written.Object)) == 0 {
				counts["taken as it is"]++
			}
		}
		for _, outcome := range outcomes {
			counts[outcome]++
		}
		counts["whole"] += len(documents) - len(outcomes)
		counts["documents"] += len(documents)
	}
	for _, d := range kind.All() {
		for _, older := range d.Describe().Replaces {
			if !kinds[older.Name] {
				t.Errorf("no document is a %s", older.Name)
			}
		}
	}
	if counts["documents"] != counts["whole"]+counts["with a named loss"]+counts["not at all"]+
		counts["made by weft or by Kuma"] {
		t.Errorf("the counts do not add up: %v", counts)
	}
	t.Logf("%v", counts)
}

// namespaced are specs of each kind of policies.
var namespaced = map[string]string{
	"MeshTrafficPermission":     `{rules: [{default: {allow: [{spiffeID: {type: Exact, value: spiffe://default/web}}]}}]}`,
	"MeshTLS":                   `{rules: [{default: {mode: Permissive}}]}`,
	"MeshRateLimit":             `{rules: [{default: {local: {http: {requestRate: {num: 1, interval: 1s}}}}}]}`,
	"MeshFaultInjection":        `{rules: [{default: {http: [{abort: {httpStatus: 500, percentage: 50}}]}}]}`,
	"MeshPassthrough":           `{default: {passthroughMode: All}}`,
	"MeshProxyPatch":            `{default: {appendModifications: [{cluster: {operation: Remove, match: {name: a}}}]}}`,
	"MeshTimeout":               `{to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1m}}]}`,
	"MeshCircuitBreaker":        `{to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxRetries: 1}}}]}`,
	"MeshRetry":                 `{to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 1}}}]}`,
	"MeshHealthCheck":           `{to: [{targetRef: {kind: Mesh}, default: {interval: 10s, tcp: {}}}]}`,
	"MeshLoadBalancingStrategy": `{to: [{targetRef: {kind: Mesh}, default: {loadBalancer: {type: Random}}}]}`,
	"MeshHTTPRoute": `{to: [{targetRef: {kind: MeshService, name: a}, rules: [{matches: [{path: {type: PathPrefix, ` +
		`value: /}}], default: {backendRefs: [{kind: MeshService, name: b, port: 80}]}}]}]}`,
	"MeshTCPRoute": `{to: [{targetRef: {kind: MeshService, name: a}, rules: [{default: {backendRefs: [{kind: ` +
		`MeshService, name: b, port: 80}]}}]}]}`,
}

// TestAPolicyOfANamespaceIsNeverOneOfTheMesh translates a policy of each kind in a namespace, in both forms: it is a
// loss on machines, and stays in its namespace on Kubernetes.
func TestAPolicyOfANamespaceIsNeverOneOfTheMesh(t *testing.T) {
	for _, d := range kind.Policies() {
		name := d.Describe().Name
		spec := namespaced[name]
		if spec == "" {
			t.Errorf("the test has no spec of a %s", name)
			continue
		}
		for _, document := range []string{
			fmt.Sprintf("{apiVersion: kuma.io/v1alpha1, kind: %s, metadata: {name: p, namespace: dev}, spec: %s}", name,
				spec),
			fmt.Sprintf("{type: %s, mesh: default, name: p.dev, labels: {k8s.kuma.io/namespace: dev}, spec: %s}", name,
				spec),
			fmt.Sprintf("{type: %s, mesh: default, name: p.dev, labels: {k8s.kuma.io/namespace: dev, "+
				"kuma.io/policy-role: consumer}, spec: %s}", name, spec),
		} {
			machines, err := Translate(split("export", document), Options{})
			if err != nil || len(machines.Resources) > 0 || machines.Complete() {
				t.Errorf("%s: on machines %v, notes %v, %v", document, machines.Resources, machines.Notes, err)
			}
			kubernetes, err := Translate(split("export", document), Options{Kubernetes: true})
			if err != nil || len(kubernetes.Resources) != 1 || !kubernetes.Complete() {
				t.Errorf("%s: on Kubernetes %v, notes %v, %v", document, kubernetes.Resources, kubernetes.Notes, err)
				continue
			}
			metadata := mapping(kubernetes.Manifest(kubernetes.Resources[0])["metadata"])
			if kubernetes.Resources[0].Key().Name != "p.dev" || metadata["name"] != "p" ||
				metadata["namespace"] != "dev" {
				t.Errorf("%s: on Kubernetes it is %s, %v", document, kubernetes.Resources[0].Key(), metadata)
			}
		}
	}
}

// neverSays are the sentences of the help that say what a translation never does, and the tests that show it.
var neverSays = map[string][]string{
	"The translation never allows a client that the export denies": {"TestNothingIsAllowedThatKumaDenies"},
	"A policy of one namespace never becomes one of the whole mesh": {"TestAPolicyOfANamespaceIsNeverOneOfTheMesh",
		"TestNothingIsAllowedThatKumaDenies"},
}

// TestWhatTheHelpSaysOfNever: each sentence of the help with "never" has a test.
func TestWhatTheHelpSaysOfNever(t *testing.T) {
	source, err := os.ReadFile("../../cmd/weft/migrate.go")
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := strings.Cut(string(source), "Long: `")
	help, _, _ = strings.Cut(help, "`")
	var tests strings.Builder
	for _, file := range []string{"documents_test.go", "meaning_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	found := 0
	for sentence := range strings.SplitSeq(strings.ReplaceAll(help, "\n", " "), ".") {
		sentence = strings.TrimSpace(sentence)
		if !strings.Contains(sentence, "never") {
			continue
		}
		found++
		if len(neverSays[sentence]) == 0 {
			t.Errorf("no test shows %q", sentence)
		}
		for _, name := range neverSays[sentence] {
			if !strings.Contains(tests.String(), "func "+name+"(") {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	if found != len(neverSays) {
		t.Errorf("the help has %d of the %d sentences", found, len(neverSays))
	}
}

// TestDefaultsOfKumaAreSkipped: each policy that Kuma writes with a mesh is skipped, and is translated once a value of
// it differs.
func TestDefaultsOfKumaAreSkipped(t *testing.T) {
	for of, specs := range madeForEachMesh {
		name, prefix, _ := strings.Cut(of, "/")
		for _, spec := range specs {
			document := func(spec string) string {
				if kind.Lacks(name) {
					return fmt.Sprintf("{type: %s, mesh: m, name: %s-m, %s", name, prefix,
						strings.TrimPrefix(spec, "{"))
				}
				return fmt.Sprintf("{type: %s, mesh: m, name: %s-m, spec: %s}", name, prefix, spec)
			}
			result, err := Translate(split("export", document(spec)), Options{})
			if err != nil || len(result.Resources) > 0 || !result.Complete() || len(result.Notes) != 1 ||
				result.Notes[0].Outcome != Skipped {
				t.Errorf("%s: %v, notes %v, %v", document(spec), result.Resources, result.Notes, err)
			}
			changed := strings.NewReplacer("5s", "7s", "1024", "7", "numRetries: 5", "numRetries: 7", "1h", "7h",
				`"*"`, "web").Replace(spec)
			result, err = Translate(split("export", document(changed)), Options{})
			if err != nil || len(result.Resources) == 0 && result.Complete() {
				t.Errorf("%s: %v, notes %v, %v", document(changed), result.Resources, result.Notes, err)
			}
		}
	}
}

// TestAPageOfAListIsAnError: what a page lacks could restrict what it allows.
func TestAPageOfAListIsAnError(t *testing.T) {
	const item = `{"type": "Mesh", "name": "a"}`
	for document, want := range map[string]string{
		`{"total": 5, "items": [` + item + `], "next": "http://127.0.0.1:5681/meshes?offset=1"}`: "`next` leads to further",
		`{"total": 5, "items": [` + item + `]}`:                                                  "it has 1 of 5 items",
		`{"apiVersion": "v1", "kind": "List", "metadata": {"continue": "abc"}, "items": [` + item + `]}`: "" +
			"`metadata.continue` leads to further",
		`{"total": 1, "items": [` + item + `], "next": null}`: "",
	} {
		result, err := Translate([]Document{documentOf("meshes.json", []byte(document))}, Options{})
		switch {
		case want == "" && (err != nil || len(result.Resources) != 1):
			t.Errorf("%s: %v, %v", document, result.Resources, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "meshes.json: the list is not whole")):
			t.Errorf("%s: %v, want %q", document, err, want)
		}
	}
}
