package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// startPlane runs `weft cp run` on free ports and answers the addresses of its API, its data plane server
// and its diagnostics once it says that it is ready. Stop sends what SIGTERM does and answers the exit code.
func startPlane(t *testing.T, args ...string) (addresses map[string]string, stop func() int) {
	t.Helper()
	for _, server := range []string{"API_SERVER_HTTP", "API_SERVER_HTTPS", "DP_SERVER", "DIAGNOSTICS_SERVER"} {
		t.Setenv("KUMA_"+server+"_PORT", "0")
	}
	if os.Getenv("WEFT_CONFIG") == "" { // else it has started another
		t.Setenv("WEFT_CONFIG", filepath.Join(t.TempDir(), "config"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	log := &firstMatch{pattern: regexp.MustCompile(`control plane is ready.* api=(\S+) apiOverTLS=(\S+) dataPlane=(\S+) diagnostics=(\S+) zones=(\S+)`), found: make(chan []string, 1)}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"cp", "run"}, args...), nil, io.Discard, log)
	}()
	stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { stop() })
	select {
	case ports := <-log.found:
		addresses = map[string]string{}
		for i, server := range []string{"api", "apiOverTLS", "dataPlane", "diagnostics", "zones"} {
			addresses[server] = ports[i+1]
			if _, port, err := net.SplitHostPort(ports[i+1]); err == nil { // else it is off
				addresses[server] = "127.0.0.1:" + port
			}
		}
		return addresses, stop
	case status := <-code:
		code <- status
		t.Fatalf("it ended with %d: %s", status, log.text.String())
	case <-time.After(20 * time.Second):
		t.Fatalf("it is not ready: %s", log.text.String())
	}
	return nil, nil
}

// firstMatch is a log of which one line is awaited.
type firstMatch struct {
	pattern *regexp.Regexp
	found   chan []string
	text    bytes.Buffer
}

func (f *firstMatch) Write(p []byte) (int, error) {
	if match := f.pattern.FindStringSubmatch(string(p)); match != nil {
		f.found <- match
	}
	return f.text.Write(p)
}

func weft(t *testing.T, api string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"--api", "http://" + api}, args...), nil, &out, &errs); code != 0 {
		t.Fatalf("weft %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String()
}

func TestTheFirstStartMakesDefaultsAndNoLaterOneDoes(t *testing.T) {
	dir := t.TempDir()
	at, stop := startPlane(t, "--data-dir", dir)
	if got := weft(t, at["api"], "get", "mesh", "default", "-o", "yaml"); strings.Contains(got, "spec") {
		t.Errorf("the mesh default is not plain:\n%s", got)
	}
	if got := weft(t, at["api"], "get", "meshidentities", "-A") + weft(t, at["api"], "get", "meshtrafficpermissions", "-A"); got != "There are no meshidentities.\nThere are no meshtrafficpermissions.\n" {
		t.Errorf("it has\n%s", got)
	}
	for _, made := range [][]string{{"mesh", "default"}, {"hostnamegenerator", "local-mesh-service"}, {"hostnamegenerator", "zone-mesh-service"}, {"hostnamegenerator", "mesh-multi-zone-service"}, {"hostnamegenerator", "mesh-external-service"}} {
		weft(t, at["api"], "delete", made[0], made[1])
	}
	stop()
	at, _ = startPlane(t, "--data-dir", dir)
	if got := defaultsOf(t, at["api"]); got != nothing {
		t.Errorf("after a restart there is\n%s", got)
	}
}

const nothing = "There are no meshes.\nThere are no hostnamegenerators.\n"

func defaultsOf(t *testing.T, api string) string {
	return weft(t, api, "get", "meshes") + weft(t, api, "get", "hostnamegenerators")
}

func TestDefaultsCanBeLeftOut(t *testing.T) {
	t.Setenv("KUMA_DEFAULTS_SKIP_MESH_CREATION", "true")
	t.Setenv("KUMA_DEFAULTS_SKIP_HOSTNAME_GENERATORS", "true")
	at, _ := startPlane(t, "--data-dir", t.TempDir())
	if got := defaultsOf(t, at["api"]); got != nothing {
		t.Errorf("there is\n%s", got)
	}
}

func TestAServiceHasTheDefaultHostnames(t *testing.T) {
	at, _ := startPlane(t, "--data-dir", t.TempDir())
	file := filepath.Join(t.TempDir(), "web.yaml")
	service := `{type: MeshService, mesh: default, name: web, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`
	if err := os.WriteFile(file, []byte(service), 0o600); err != nil {
		t.Fatal(err)
	}
	weft(t, at["api"], "apply", "-f", file)
	deadline := time.Now().Add(time.Minute)
	for got := ""; !strings.Contains(got, "hostname: web.svc.mesh.local") || !strings.Contains(got, "hostname: web.svc.default.mesh.local"); {
		if time.Now().After(deadline) {
			t.Fatalf("the service never got its names:\n%s", got)
		}
		got = weft(t, at["api"], "get", "meshservice", "web", "-o", "yaml")
	}
}

func TestAStoreInMemoryKeepsNothing(t *testing.T) {
	t.Setenv("KUMA_STORE_TYPE", "memory")
	dir := t.TempDir()
	at, stop := startPlane(t, "--data-dir", dir)
	weft(t, at["api"], "delete", "mesh", "default")
	stop()
	at, _ = startPlane(t, "--data-dir", dir)
	if got := weft(t, at["api"], "get", "meshes"); !strings.Contains(got, "default") {
		t.Errorf("something of the former run was kept; the meshes are\n%s", got)
	}
}

// A stop does not wait for those who are slow, half there, or asking for nothing.
func TestAStopIsCleanWithinSecondsWhoeverIsConnected(t *testing.T) {
	at, stop := startPlane(t, "--data-dir", t.TempDir())
	for server, address := range at {
		if server == "zones" {
			continue // of a global control plane
		}
		for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n", "PUT /meshes/default HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"} {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, said)
		}
	}
	// Who comes after them is served, so that they were accepted.
	for _, url := range []string{"http://" + at["diagnostics"] + "/ready", "http://" + at["api"] + "/"} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", url, response.Status)
		}
	}
	proxy, err := tls.Dial("tcp", at["dataPlane"], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	began := time.Now()
	if code := stop(); code != 0 {
		t.Errorf("it ended with %d, want 0", code)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s to stop", took)
	}
}

// What is being answered when the stop comes is answered to its end.
func TestAStopLetsRequestsFinish(t *testing.T) {
	at, stop := startPlane(t, "--data-dir", t.TempDir())
	token := adminToken(t, at["api"])
	c, err := net.Dial("tcp", at["api"])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"type": "Mesh", "name": "late"}`
	fmt.Fprintf(c, "PUT /meshes/late HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", token, len(body))
	answers := bufio.NewReader(c)
	if r, err := http.ReadResponse(answers, nil); err != nil || r.StatusCode != http.StatusContinue {
		t.Fatalf("it does not read the body: %v %v", r, err)
	}
	stopped := make(chan int)
	go func() { stopped <- stop() }()
	for { // until nobody is let in any more
		probe, err := net.Dial("tcp", at["api"])
		if err != nil {
			break
		}
		probe.Close()
	}
	io.WriteString(c, body)
	if r, err := http.ReadResponse(answers, nil); err != nil || r.StatusCode != http.StatusCreated {
		t.Errorf("the request under way was answered %v %v", r, err)
	}
	if code := <-stopped; code != 0 {
		t.Errorf("it ended with %d, want 0", code)
	}
}

// The first start leaves a token for administrators elsewhere, and no later one makes another.
func TestTheFirstStartMakesAnAdministratorsToken(t *testing.T) {
	dir := t.TempDir()
	at, stop := startPlane(t, "--data-dir", dir)
	bootstrap := adminToken(t, at["api"])
	stop()
	at, _ = startPlane(t, "--data-dir", dir)
	for _, server := range []struct{ url, token string }{
		{"http://" + at["api"] + "/globalsecrets/admin-user-token", bootstrap},
		{"http://" + at["diagnostics"] + "/debug/process", bootstrap},
		{"http://" + at["api"] + "/meshes", ""},
		{"http://" + at["diagnostics"] + "/debug/process", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", server.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusUnauthorized
		if server.token != "" {
			request.Header.Set("Authorization", "Bearer "+server.token)
			want = http.StatusOK
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s, token %v: %s", server.url, server.token != "", answer.Status)
		}
	}
}

func TestTheAdministratorsTokenCanBeLeftOut(t *testing.T) {
	t.Setenv("KUMA_API_SERVER_AUTHN_TOKENS_BOOTSTRAP_ADMIN_TOKEN", "false")
	at, _ := startPlane(t, "--data-dir", t.TempDir())
	if got := weft(t, at["api"], "get", "globalsecrets"); got != "There are no globalsecrets.\n" {
		t.Errorf("there is\n%s", got)
	}
}

// adminToken reads the token that the first start made.
func adminToken(t *testing.T, api string) string {
	t.Helper()
	var secret struct{ Data []byte }
	if err := json.Unmarshal([]byte(weft(t, api, "get", "globalsecret", "admin-user-token", "-o", "json")), &secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data)
}

// TestAnAgentOfKumaAsksForItsBootstrap: on the port of proxies, over HTTPS, without a proof.
func TestAnAgentOfKumaAsksForItsBootstrap(t *testing.T) {
	at, stop := startPlane(t, "--data-dir", t.TempDir())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as kuma-dp has it
	response, err := client.Post("https://"+at["dataPlane"]+"/bootstrap", "application/json", strings.NewReader(`{"mesh": "default", "name": "web-1", "proxyType": "dataplane"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if want := "weft-dp run --cp-address https://" + at["dataPlane"]; err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), want) {
		t.Errorf("%d %v %s, want %q", response.StatusCode, err, body, want)
	}
	if code := stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
