package inject

import (
	"testing"

	"weft/kind"
)

// TestHarmlessPatches: what a Pod's own choice of a ContainerPatch may change is a list of what is harmless.
func TestHarmlessPatches(t *testing.T) {
	const sidecar = `{"name": "kuma-sidecar", "image": "weft-dp", "args": ["run"], "env": [{"name": "POD_NAME",
		"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "KUMA_DATAPLANE_MESH", "value": "default"}],
		"ports": [{"containerPort": 9902}], "resources": {"limits": {"memory": "512Mi"}}, "readinessProbe":
		{"periodSeconds": 5, "httpGet": {"path": "/ready", "port": 9902}}, "securityContext": {"runAsUser": 5678,
		"runAsGroup": 5678, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
		"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}, "seccompProfile": {"type": "RuntimeDefault"}},
		"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "token", "mountPath": "/var/run/token",
		"readOnly": true}]}`
	operation := func(op, path, value string) kind.ContainerPatchOperation {
		return kind.ContainerPatchOperation{Op: op, Path: path, Value: value}
	}
	for name, c := range map[string]struct {
		patch  kind.ContainerPatchOperation
		raises string
	}{
		"memory":                {operation("replace", "/resources/limits/memory", `"1Gi"`), ""},
		"requests":              {operation("add", "/resources/requests/cpu", `"1"`), ""},
		"a variable":            {operation("add", "/env/-", `{"name": "TEAM", "value": "a"}`), ""},
		"a variable gone again": {operation("add", "/env/0", `{"name": "TEAM", "value": "a"}`), ""},
		"a pull policy":         {operation("add", "/imagePullPolicy", `"Always"`), ""},
		"timing":                {operation("replace", "/readinessProbe/periodSeconds", `9`), ""},
		"fewer capabilities":    {operation("remove", "/securityContext/capabilities/add", ""), ""},
		"privileged: false":     {operation("add", "/securityContext/privileged", "false"), ""},

		"privileged":   {operation("add", "/securityContext/privileged", "true"), "privileged"},
		"a capability": {operation("add", "/securityContext/capabilities/add/-", `"SYS_ADMIN"`), "capabilities"},
		"a user":       {operation("replace", "/securityContext/runAsUser", "0"), "runAsUser"},
		"no securityContext": {operation("remove", "/securityContext", ""), "allowPrivilegeEscalation, capabilities, " +
			"readOnlyRootFilesystem, runAsGroup, runAsNonRoot, runAsUser, seccompProfile"},
		"seccomp":           {operation("replace", "/securityContext/seccompProfile/type", `"Unconfined"`), "seccompProfile"},
		"a host port":       {operation("add", "/ports/0/hostPort", "80"), "ports"},
		"a device":          {operation("add", "/volumeDevices", `[{"name": "d", "devicePath": "/dev/x"}]`), "volumeDevices"},
		"envFrom":           {operation("add", "/envFrom", `[{"secretRef": {"name": "s"}}]`), "envFrom"},
		"a Secret":          {operation("add", "/env/-", `{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}`), "env"},
		"a setting":         {operation("replace", "/env/1/value", `"other"`), "env"},
		"a linker variable": {operation("add", "/env/-", `{"name": "LD_PRELOAD", "value": "/tmp/x.so"}`), "env"},
		"a proxy":           {operation("add", "/env/-", `{"name": "https_proxy", "value": "http://x"}`), "env"},
		"a reference":       {operation("add", "/env/-", `{"name": "A", "value": "$(POD_NAME)"}`), "env"},
		"a swapped mount":   {operation("replace", "/volumeMounts/0/name", `"token"`), "volumeMounts"},
		"a writable mount":  {operation("remove", "/volumeMounts/1/readOnly", ""), "volumeMounts"},
		"a command":         {operation("add", "/command", `["sh", "-c", "x"]`), "command"},
		"arguments":         {operation("add", "/args/-", `"--x"`), "args"},
		"an image":          {operation("replace", "/image", `"evil"`), "image"},
		"a lifecycle":       {operation("add", "/lifecycle", `{"postStart": {"exec": {"command": ["sh"]}}}`), "lifecycle"},
		"a probe":           {operation("replace", "/readinessProbe", `{"exec": {"command": ["sh"]}}`), "readinessProbe"},
		"a claim":           {operation("add", "/resources/claims", `[{"name": "gpu"}]`), "resources"},
		"a restart policy":  {operation("add", "/restartPolicy", `"Always"`), "restartPolicy"},
		"stdin":             {operation("add", "/stdin", "true"), "stdin"},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := decodeContainer([]byte(sidecar))
			if err != nil {
				t.Fatal(err)
			}
			text, err := apply([]byte(sidecar), []kind.ContainerPatchOperation{c.patch})
			if err != nil {
				t.Fatal(err)
			}
			after, err := decodeContainer(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := harmfulChanges(before, after); got != c.raises {
				t.Errorf("it raises %q, want %q", got, c.raises)
			}
		})
	}
}
