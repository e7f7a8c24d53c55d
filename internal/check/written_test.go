package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/check"
	"weft/kind"
)

// TestWritten: a write that selects nothing, or names what does not exist, has the finding of a check afterwards.
func TestWritten(t *testing.T) {
	const mesh = "{type: Mesh, name: default}"
	const web = "\n---\n{type: Dataplane, mesh: default, name: web-1, labels: {app: web}, networking: {address: " +
		"10.0.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}}\n---\n" +
		"{type: MeshService, mesh: default, name: web, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, " +
		"ports: [{port: 80, targetPort: 8080}]}}\n"
	timeout := func(target, to string) string {
		return `{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: ` + target + `, to: [{targetRef: ` + to +
			`, default: {connectionTimeout: 1s}}]}}`
	}
	service := `{type: MeshService, mesh: default, name: s, spec: {selector: {dataplaneTags: {kuma.io/service: %}}, ` +
		`ports: [{port: 80}]}}`
	ring := func(name string, size int) string {
		return fmt.Sprintf("{type: MeshLoadBalancingStrategy, mesh: default, name: %s, spec: {to: [{targetRef: "+
			"{kind: Mesh}, default: {loadBalancer: {type: RingHash, ringHash: {minRingSize: %d}}}}]}}\n", name, size)
	}
	for name, c := range map[string]struct{ has, doc, want string }{
		"a service exists": {web, timeout("{kind: Mesh}", "{kind: MeshService, name: web}"), ""},
		"a service does not exist": {web, timeout("{kind: Mesh}", "{kind: MeshService, name: wev}"),
			"policy-ref-not-found"},
		"labels of a Dataplane": {web, timeout("{kind: Dataplane, labels: {app: web}}", "{kind: Mesh}"), ""},
		"labels that nothing has": {web, timeout("{kind: Dataplane, labels: {app: wev}}", "{kind: Mesh}"),
			"selector-matches-nothing"},
		"a Dataplane that does not exist": {web, timeout("{kind: Dataplane, name: web-2}", "{kind: Mesh}"),
			"policy-ref-not-found selector-matches-nothing"},
		"a permission for nothing": {web, `{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: ` +
			`{kind: Dataplane, labels: {app: wev}}, rules: [{default: {allow: [{spiffeID: {type: Exact, value: ` +
			`"spiffe://a/b"}}]}}]}}`, "selector-matches-nothing"},
		"a policy that costs too much": {web + "---\n" + ring("a", 1048576) + "---\n" + ring("b", 1048576) + "---\n" +
			ring("c", 1048576), ring("d", 1048576), "policy-not-accepted"},
		"one that costs little":     {web, ring("d", 1048576), ""},
		"a service with servers":    {web, strings.Replace(service, "%", "web", 1), ""},
		"a service without servers": {web, strings.Replace(service, "%", "wev", 1), "service-matches-nothing"},
		"a mesh without Dataplanes": {"", timeout("{kind: Mesh}", "{kind: MeshService, name: wev}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := storedWorld(t, &txtar.Archive{Files: []txtar.File{
				{Name: "resources.yaml", Data: []byte(mesh + c.has)}}})
			written, err := kind.Parse([]byte(c.doc))
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, f := range check.Written(w.stage, w.snapshot, written.Object) {
				problems = append(problems, f.Problem)
			}
			if slices.Sort(problems); strings.Join(problems, " ") != c.want {
				t.Errorf("the findings are %q, want %q", problems, c.want)
			}
		})
	}
}
