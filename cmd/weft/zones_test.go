package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/client"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
)

const shop = `
type: Dataplane
name: web-1
networking: {address: 10.0.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}
---
type: Dataplane
name: client
networking: {address: 10.0.0.2, outbound: [{port: 10001, backendRef: {kind: MeshService, name: web, port: 80}}]}
---
type: MeshService
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}
`

// TestGlobalInspectsZones: global sends inspection requests to a zone for state that only the zone has. Each shows its
// connection to the other.
func TestGlobalInspectsZones(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at := t.TempDir()
	global := startPlane(t, "--data-dir", at, "--mode", "global")
	east := startShop(t, global, at)

	awaitOutput(t, "web-1       10.0.0.1:8080   not ready", global.API, "inspect", "service", "web")
	awaitOutput(t, "destination kri_msvc_default_east__web_80 has no endpoints", global.API, "explain", "--from",
		"client", "--to", "web")
	c, err := client.New(throughSocket(client.Options{Address: "http://" + global.API}))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"_config", "_config?shadow=true&include=diff", "_snapshot"} {
		path, query, _ := strings.Cut(path, "?")
		values, _ := url.ParseQuery(query) // it is constant
		var config json.RawMessage
		if err := c.Get(t.Context(), "/meshes/default/dataplanes/client/"+path, values, &config); err != nil ||
			!strings.Contains(string(config), `"kri_msvc_default_east__web_80"`) {
			t.Errorf("%s of a proxy of the zone, on global: %.300s, %v", path, config, err)
		}
	}
	awaitOutput(t, "0/2          0/1", global.API, "inspect", "zones")
	awaitOutput(t, "This zone is connected to the global control plane", east.API, "inspect", "zones")
	for _, at := range []*servertest.Plane{global, east} {
		if metrics := metricsOf(t, at.Diagnostics); !strings.Contains(metrics,
			`weft_zonesync_connected{zone="east"} 1`) {
			t.Error("the metrics do not have the connection")
		}
	}

	weft(t, east.API, "apply", "-f", writeFile(t, slower))
	copied := kind.SyncedName(&kind.MeshServices.Info, "default", "web", kind.Owner{Zone: "east"})
	for _, to := range []string{"web", copied} {
		awaitOutput(t, "http.requestTimeout   9s", global.API, "inspect", "policies", "--for", "client", "--to", to)
		awaitOutput(t, "destination kri_msvc_default_east__web_80 has no endpoints", global.API, "explain", "--from",
			"client", "--to", to)
	}
	rejected(t, "client reaches no service \"wbe\"; similar names are web", global.API, "inspect", "policies", "--for",
		"client", "--to", "wbe")
	rejected(t, "there is no zone \"west\"", global.API, "inspect", "dataplane", "client", "--zone", "west")
	rejected(t, "there is no zone \"west\"", global.API, "inspect", "service", "web", "--zone", "west")
	rejected(t, "there is no Mesh shop", global.API, "inspect", "dataplane", "client", "--mesh", "shop")
	weft(t, global.API, "apply", "-f", writeFile(t, external))
	awaitOutput(t, "zone: east", global.API, "get", "meshexternalservice", "api", "-o", "yaml")
	awaitOutput(t, "0/1", global.API, "get", "meshexternalservices")
	awaitOutput(t, "east   Reachable   False", global.API, "describe", "meshexternalservice", "api")
	awaitOutput(t, "east   web.svc.mesh.local", global.API, "describe", "meshservice", "web")
	if got := weft(t, east.API, "get", "meshexternalservices"); !strings.Contains(got, "0/1") {
		t.Errorf("in the zone:\n%s", got)
	}
	rejected(t, "east", global.API, "delete", "dataplane", "client")
	rejected(t, "east", global.API, "delete", "meshtimeout", "slower", "--zone", "east")
	rejected(t, "slower of the zone east", global.API, "get", "meshtimeout", "slower")
	awaitOutput(t, "slower", global.API, "get", "meshtimeout", "slower", "--zone", "east")

	east.Stop()
	awaitOutput(t, "away", global.API, "inspect", "zones")
	const reason = ": the zone east cannot be queried"
	for command, missing := range map[string][]string{
		"inspect service web":                     {"servers and allowed clients"},
		"inspect dataplanes":                      {"CONFIG of the proxies of the zone east"},
		"describe dataplane client":               {"acks", "identity, policies and facts", "findings of Zone east"},
		"describe meshservice web":                {"backends and callers", "findings of Zone east"},
		"describe meshtimeout slower --zone east": {"findings of Zone east"},
	} {
		got := weft(t, global.API, strings.Fields(command)...)
		_, unknown, _ := strings.Cut(got, "\nUnknown:\n")
		for _, part := range missing {
			if !strings.Contains(unknown, "  "+part+reason) {
				t.Errorf("weft %s does not name %s as unknown:\n%s", command, part, got)
			}
		}
	}
	for command, want := range map[string]string{
		"inspect dataplanes": "STATE, CERTIFICATE EXPIRES and NACKS of the proxies of the zone east: the zone is " +
			"disconnected, its last connection ended",
		"inspect services":          "STATUS and ONLINE of the services of the zone east: the zone is disconnected",
		"describe dataplane client": "state, certificate and NACKs of the zone east: the zone is disconnected",
		"inspect zones":             "-/2          -/1",
	} {
		if got := weft(t, global.API, strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("weft %s lacks %q:\n%s", command, want, got)
		}
	}
}

const external = `
type: MeshExternalService
name: api
spec: {match: {type: HostnameGenerator, port: 443}, endpoints: [{address: 192.0.2.1, port: 443}]}
`

// rejected runs a command that fails with an error that has a text.
func rejected(t *testing.T, want, api string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), append([]string{"--api", "http://" + api}, args...), nil, &out, &errs)
	if code != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("weft %s: %d\n%s%s, want %s", strings.Join(args, " "), code, &out, &errs, want)
	}
}

// writeFile returns the path of a file with a text.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const slower = `
type: MeshTimeout
name: slower
spec: {to: [{targetRef: {kind: MeshService, labels: {kuma.io/display-name: web}}, default: {http: {requestTimeout: 9s}}}]}
`

// startShop starts the zone east with the shop. It is connected to a global control plane with a data directory.
func startShop(t *testing.T, global *servertest.Plane, at string) *servertest.Plane {
	t.Helper()
	dir := t.TempDir()
	token, file := filepath.Join(dir, "east.token"), filepath.Join(dir, "shop.yaml")
	for path, text := range map[string]string{token: weft(t, global.API, "generate", "zone-token", "--zone", "east",
		"--scope", "cp"), file: shop} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	east := startPlane(t, "--data-dir", dir, "--zone", "east", "--global-address", "grpcs://"+global.Zones,
		"--global-ca-file", filepath.Join(at, "ca.crt"), "--zone-token-file", token)
	awaitOutput(t, "origin: global", east.API, "get", "mesh", "default", "-o", "yaml")
	weft(t, east.API, "apply", "-f", file)
	return east
}

// TestReplicasOfGlobalInspectZones: a replica to which a zone is not connected inspects it through the one to which it
// is.
func TestReplicasOfGlobalInspectZones(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at := t.TempDir()
	usePostgres(t)
	global := startPlane(t, "--data-dir", at, "--mode", "global")
	other := startPlane(t, "--data-dir", t.TempDir(), "--mode", "global")
	t.Setenv("KUMA_STORE_TYPE", "memory")
	startShop(t, global, at)
	testwait.UntilTrue(t, "the other replica has the configuration of the zone's proxy", func() bool {
		var config json.RawMessage
		err := other.Admin.Get(t.Context(), "/meshes/default/dataplanes/client/_config", nil, &config)
		return err == nil && strings.Contains(string(config), "envoy.config.listener.v3.Listener")
	})
}

// TestGlobalComparesEveryZone: a diff on global has the proxies of each zone, and a zone that cannot be queried by its
// name.
func TestGlobalComparesEveryZone(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at, dir := t.TempDir(), t.TempDir()
	global := startPlane(t, "--data-dir", at, "--mode", "global")
	resources, change := filepath.Join(dir, "shop.yaml"), filepath.Join(dir, "slower.yaml")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(resources, shop)
	write(change, slower)
	zones := map[string]*servertest.Plane{}
	for _, zone := range []string{"east", "west"} {
		token := filepath.Join(dir, zone+".token")
		write(token, weft(t, global.API, "generate", "zone-token", "--zone", zone, "--scope", "cp"))
		zones[zone] = startPlane(t, "--data-dir", filepath.Join(dir, zone), "--zone", zone, "--global-address",
			"grpcs://"+global.Zones, "--global-ca-file", filepath.Join(at, "ca.crt"), "--zone-token-file", token)
		awaitOutput(t, "origin: global", zones[zone].API, "get", "mesh", "default", "-o", "yaml")
		weft(t, zones[zone].API, "apply", "-f", resources)
	}
	const changes = "zone %s, mesh default: 1 proxy changes: client\n" +
		"AT       CALLERS   KIND          FIELD                 BEFORE      AFTER\n" +
		"web:80             MeshTimeout   http.requestTimeout   (default)   9s (MeshTimeout default/"
	for zone := range zones {
		awaitOutput(t, fmt.Sprintf(changes, zone), global.API, "diff", "-f", change)
	}
	got := weft(t, global.API, "diff", "-f", change)
	for _, want := range []string{"MeshTimeout default/slower created\n", fmt.Sprintf(changes, "east"),
		fmt.Sprintf(changes, "west")} {
		if !strings.Contains(got, want) {
			t.Errorf("the diff lacks %q:\n%s", want, got)
		}
	}
	if got := weft(t, global.API, "get", "meshtimeouts"); strings.Contains(got, "slower") {
		t.Errorf("the diff wrote the policy:\n%s", got)
	}

	zones["west"].Stop()
	awaitOutput(t, "away", global.API, "inspect", "zones")
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"--api", "http://" + global.API, "diff", "-f", change, "--exit-code"}, nil, &out,
		&errs)
	if code != 1 || !strings.Contains(out.String(), fmt.Sprintf(changes, "east")) ||
		!strings.Contains(out.String(), "zone west: unknown: the zone west cannot be queried") ||
		!strings.Contains(errs.String(), "the effect on 1 of 2 zones is unknown: west") {
		t.Errorf("a zone is disconnected: %d\n%s%s", code, &out, &errs)
	}
}

func metricsOf(t *testing.T, diagnostics string) string {
	t.Helper()
	c, err := client.New(throughSocket(client.Options{Address: "http://" + diagnostics}))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	if err := c.Get(t.Context(), "/metrics", nil, &text); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
