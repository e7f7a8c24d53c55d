package main

import (
	"bytes"
	"testing"
)

// TestExitCodesOfChecks: a script learns whether errors were found, the request is wrong, no control plane responds, or
// parts are unknown.
func TestExitCodesOfChecks(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	api := startPlane(t, "--data-dir", t.TempDir(), "--mode", "global").API
	check := func(want int, api string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"--api", "http://" + api, "check"}, args...)
		if code := run(t.Context(), args, nil, &out, &errs); code != want {
			t.Errorf("weft %v exits with %d, want %d\n%s%s", args, code, want, &out, &errs)
		}
	}
	check(0, api)
	check(1, api, "--mesh", "nowhere")
	check(2, "127.0.0.1:1")
	weft(t, api, "apply", "-f", writeFile(t, "{type: Zone, name: east}"))
	check(3, api)
	zone := startPlane(t, "--data-dir", t.TempDir()).API
	weft(t, zone, "apply", "-f", writeFile(t, `{type: MeshService, name: empty, spec: {selector: {dataplaneTags: `+
		`{kuma.io/service: empty}}, ports: [{port: 80}]}}`))
	check(1, zone)
}
