package rest

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weft/internal/access"
)

// TestAnAgentOfKumaIsToldWhatToRun sends the request of kuma-dp, which prints the body of a 4xx and does not retry.
func TestAnAgentOfKumaIsToldWhatToRun(t *testing.T) {
	server := httptest.NewServer(NewBootstrapServer(access.NewDenials(slog.New(slog.DiscardHandler))).Handler)
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	request := func(method, path, body string) (int, problem, string) {
		r, _ := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		raw, _ := io.ReadAll(response.Body)
		var p problem
		if err := json.Unmarshal(raw, &p); err != nil || p.Title == "" || p.Status != response.StatusCode ||
			len(raw) > 2<<10 {
			t.Fatalf("%s %s: %v %s", method, path, err, raw)
		}
		return response.StatusCode, p, string(raw)
	}
	const head = "run `weft-dp run --cp-address https://"
	for body, want := range map[string]string{
		`{"mesh": "demo", "name": "cart-1", "proxyType": "dataplane", "dataplaneToken": "s3cret", ` +
			`"dataplaneTokenPath": "/etc/token", "dataplaneResource": "{}", "version": {}}`: " --ca-cert-file " +
			"CA_FILE --dataplane-file FILE --dataplane-token-file /etc/token`, where CA_FILE is ca.crt of the " +
			"control plane's data directory and FILE is the --dataplane-file of kuma-dp",
		`{"mesh": "demo", "name": "cart-1", "proxyType": "dataplane"}`: " --dataplane-token-file TOKEN_FILE`, where " +
			"CA_FILE is ca.crt of the control plane's data directory and FILE is what `weft get dataplane cart-1 " +
			"--mesh demo -o yaml` prints",
		`{"name": "zi", "proxyType": "ingress"}`: "TOKEN_FILE --proxy-type ingress`, where CA_FILE is ca.crt of the " +
			"control plane's data directory and FILE is what `weft get zoneingress zi -o yaml` prints",
		`{"name": "a; rm -rf /", "mesh": "$(id)", "dataplaneTokenPath": "` + "`id`" +
			`", "proxyType": "x"}`: "TOKEN_FILE`, where CA_FILE is ca.crt of the control plane's data directory and " +
			"FILE is what `weft get dataplane NAME --mesh MESH -o yaml` prints",
		`not JSON`:                          "`weft get dataplane NAME --mesh default -o yaml`",
		strings.Repeat("x", maxBootstrap+1): "`weft get dataplane NAME --mesh default -o yaml`",
	} {
		status, p, raw := request("POST", "/bootstrap", body)
		if status != http.StatusBadRequest || !strings.Contains(p.Detail, head+at) ||
			!strings.Contains(p.Detail, want) {
			t.Errorf("%.100s: %d %s", body, status, p.Detail)
		}
		for _, secret := range []string{"s3cret", "rm -rf", "$("} {
			if strings.Contains(raw, secret) {
				t.Errorf("the response repeats %q", secret)
			}
		}
	}
	for _, path := range []string{"/", "/meshes", "/bootstrap"} {
		if status, p, _ := request("GET", path, ""); status != http.StatusNotFound &&
			status != http.StatusMethodNotAllowed || !strings.Contains(p.Detail, "5681") {
			t.Errorf("GET %s: %d %s", path, status, p.Detail)
		}
	}
}
