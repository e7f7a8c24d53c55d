package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// A user who may do everything in one mesh reads, previews and changes nothing of another one: by its paths, by paths
// that lead there, by bodies and queries that name it, and by several writes at once.
func TestHostileUsersOfOneMesh(t *testing.T) {
	a := newAttack(t, "a user of one mesh reads or changes another mesh")
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)), "KUMA_ACCESS_STATIC_READ_GROUPS=mesh-system:admin",
		"KUMA_ACCESS_STATIC_MESHES=[{meshes: [pay], groups: [pay-team], actions: [read, preview, write, "+
			"operatorResources, adminResources, generateDPToken, viewConfigDump, viewStats, viewClusters]}]")
	w.startPlane()
	w.apply(withIdentity + "\n---\ntype: Mesh\nname: pay\n---\ntype: MeshTimeout\nmesh: default\nname: treasure\n" +
		"spec: {to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 7s}}]}\n")
	user, err := w.weft("generate", "user-token", "--name", "u", "--group", "pay-team", "--valid-for", "1h")
	if err != nil {
		t.Fatal(err)
	}
	const own = `{"type":"MeshTimeout","mesh":"pay","name":"own","spec":{"to":[{"targetRef":{"kind":"Mesh"},` +
		`"default":{"idleTimeout":"1s"}}]}}`
	if status, said := w.sendAs(user, "PUT", "/meshes/pay/meshtimeouts/own", own); status != http.StatusCreated {
		t.Fatalf("it does not write its own mesh, so the attack has no tools: %d %s", status, said)
	}
	const inDefault = `{"type":"MeshTimeout","mesh":"default","name":"treasure","spec":{"to":[{"targetRef":` +
		`{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}}`
	const onKubernetes = `{"apiVersion":"kuma.io/v1alpha1","kind":"MeshTimeout","metadata":{"name":"treasure",` +
		`"labels":{"kuma.io/mesh":"default"}},"mesh":"default","spec":{"to":[{"targetRef":{"kind":"Mesh"},` +
		`"default":{"idleTimeout":"1s"}}]}}`
	attempts := [][3]string{
		{"PUT", "/meshes/pay/meshtimeouts/treasure", inDefault},
		{"PUT", "/meshes/pay/meshtimeouts/treasure?mesh=default", onKubernetes},
		{"PUT", "/meshes/pay/../default/meshtimeouts/treasure", inDefault},
		{"PUT", "/meshes/pay%2F..%2Fdefault/meshtimeouts/treasure", inDefault},
		{"DELETE", "/meshes/pay/meshtimeouts/..%2F..%2F..%2Fdefault%2Fmeshtimeouts%2Ftreasure", ""},
		{"POST", "/_dry-run", `{"apply":[` + own + `,` + inDefault + `]}`},
		{"POST", "/_diff", `{"apply":[` + own + `],"delete":[{"type":"MeshTimeout","mesh":"default","name":"treasure"}]}`},
		{"POST", "/_diff?fields=true&shadow=true", `{"apply":[` + onKubernetes + `]}`},
		{"POST", "/tokens/dataplane", `{"validFor":"1h"}`}, // of the mesh default
		{"POST", "/tokens/dataplane", `{"mesh":"pay","Mesh":"default","validFor":"1h"}`},
		{"POST", "/tokens/user", `{"name":"mesh-system:admin","groups":["mesh-system:admin"],"validFor":"1h"}`},
		{"POST", "/tokens/zone", `{"zone":"east","validFor":"1h"}`},
		{"DELETE", "/meshes/default", ""}, {"POST", "/_sni", `{"format":"v2"}`},
		{"GET", "/meshes/default", ""}, {"GET", "/meshes/default/secrets", ""}, {"GET", "/globalsecrets", ""},
		{"GET", "/_kri/kri_mt_default___treasure_", ""}, {"GET", "/_kri/kri_m____default_", ""},
		{"GET", "/_check?mesh=default", ""}, {"GET", "/_check?mesh=pay&mesh=default", ""}, {"GET", "/_bundle", ""},
		{"GET", "/meshtimeouts?offset=default/", ""}, {"GET", "/meshtimeouts?name=treasure&mesh=default", ""},
		{"GET", "/meshes?name=default", ""}, {"GET", "/dataplanes/_overview?filter[zone]=east", ""},
		{"GET", "/global-insight", ""}, {"GET", "/zones/_inspect", ""}, {"GET", "/_settings", ""},
	}
	for _, d := range kind.Written() {
		info := d.Describe()
		document, err := os.ReadFile("../../examples/kinds/" + strings.ToLower(info.Name) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		path := "/" + info.Plural + "/absent"
		if info.Scope == resource.Mesh {
			path = "/meshes/default" + path
		}
		body := nameOf.ReplaceAllString(string(document), "name: absent")
		attempts = append(attempts, [3]string{"PUT", path, body}, [3]string{"PUT", path + "?dryRun=true", body},
			[3]string{"DELETE", path, ""})
	}
	for _, attempt := range attempts {
		status, said := w.sendAs(user, attempt[0], attempt[1], attempt[2])
		denied := status >= 400 && status < 500
		if shown := strings.Contains(said, "treasure") && !denied; shown || !denied && attempt[0] != http.MethodGet {
			a.fellTo("%s %s: %d %s", attempt[0], attempt[1], status, said)
			continue
		}
		a.repelled()
	}
	if said, err := w.api("/meshes/default/meshtimeouts/treasure"); err != nil || !strings.Contains(said, "7s") {
		a.fellTo("the resource of the other mesh is %s, %v", said, err)
	}
}

// sendAs sends a request to the API with a user token, and returns the status and the body of the response.
func (w *world) sendAs(user, method, path, body string) (status int, said string) {
	w.t.Helper()
	request, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", w.plane.Ports.API, path),
		strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(user))
	response, err := client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
