package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A user who may write a MeshProxyPatch, an administrator or not, makes no proxy of the control plane's machine forward
// to the administrator's socket, or serve a file or a variable of the machine. Bytes that are forwarded to the socket
// all the same have no permission.
func TestHostilePatchesReachTheMachine(t *testing.T) {
	a := newAttack(t, "a user who may write a MeshProxyPatch becomes the administrator of the machine")
	w := newWorld(t)
	w.apply(withIdentity)
	socket := filepath.Join(w.plane.Data, "admin.sock")
	secrets := filepath.Join(w.plane.Data, "secrets.key")
	patch := func(modification string) string {
		return "type: MeshProxyPatch\nmesh: default\nname: hostile\nspec: {default: {appendModifications: [" +
			modification + "]}}\n"
	}
	host := func(route string) string {
		return `{virtualHost: {operation: Add, value: "{name: x, domains: ['*'], routes: [{match: {prefix: /}, ` + route + `}]}"}}`
	}
	for what, modification := range map[string]string{
		"a cluster at the socket": `{cluster: {operation: Add, value: "{name: x, loadAssignment: {clusterName: x, ` +
			`endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: ` + socket + `}}}}]}]}}"}}`,
		"a response from a file":     host(`directResponse: {status: 200, body: {filename: ` + secrets + `}}`),
		"a response from a variable": host(`directResponse: {status: 200, body: {environmentVariable: HOME}}`),
		"a header from a variable":   host(`route: {cluster: x}, responseHeadersToAdd: [{header: {key: a, value: '%ENVIRONMENT(HOME)%'}}]`),
		"a header from a file": host(`route: {cluster: x}, responseHeadersToAdd: ` +
			`[{header: {key: a, value: '%FILE_CONTENT(` + secrets + `)%'}}]`),
		"a log in the store": `{listener: {operation: Patch, value: "{accessLog: [{name: x, typedConfig: {'@type': ` +
			`type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: ` + secrets + `}}]}"}}`,
		"a cluster at the socket by JSON": `{cluster: {operation: Patch, jsonPatches: [{op: add, path: /loadAssignment, ` +
			`value: {clusterName: x, endpoints: [{lbEndpoints: [{endpoint: {address: {pipe: {path: ` + socket + `}}}}]}]}}]}}`,
	} {
		if said, err := w.weftWith(patch(modification), "apply", "-f", "-"); err == nil {
			a.fellTo("%s: %s", what, said)
			continue
		} else if !strings.Contains(err.Error(), "leads to the machine") {
			t.Errorf("%s: the reason is %v", what, err)
		}
		a.repelled()
	}

	forwarded := &http.Client{Transport: throughSocket(socket)}
	for _, path := range []string{"/meshes", "/meshes/default/secrets", "/metrics", "/debug/pprof/"} {
		response, err := forwarded.Get("http://weft" + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			a.fellTo("bytes at the socket read %s: %s", path, response.Status)
			continue
		}
		a.repelled()
	}
	if info, err := os.Stat(filepath.Join(w.plane.Data, "admin.header")); err != nil || info.Mode().Perm() != 0o600 {
		a.fellTo("the proof of the socket has mode %v, %v", info, err)
	}
	if _, err := w.api("/meshes"); err != nil {
		t.Errorf("the administrator: %v", fmt.Errorf("GET /meshes: %w", err))
	}
}
