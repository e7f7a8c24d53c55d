package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/internal/adminsocket"
	"weft/internal/server/servertest"
	"weft/internal/store/sealed"
	"weft/internal/testwait"
	"weft/kind"
)

// A stop does not wait for clients that are slow or idle, or that have sent a part of a request.
func TestAStopIsClean(t *testing.T) {
	p := servertest.Start(t, servertest.Options{})
	for _, address := range []string{p.API, p.APIOverTLS, p.DataPlane, p.Diagnostics} {
		for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n",
			"PUT /meshes/default HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"} {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, said)
		}
	}
	// A later client is served, so these were accepted.
	for _, url := range []string{"http://" + p.Diagnostics + "/ready", "http://" + p.API + "/"} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s responds %s", url, response.Status)
		}
	}
	proxy, err := tls.Dial("tcp", p.DataPlane, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop() }()
	if err := testwait.Receive(t, "it stops", stopped); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A request under way at the stop gets its response.
func TestAStopLetsRequestsFinish(t *testing.T) {
	p := servertest.Start(t, servertest.Options{})
	token := adminToken(t, p)
	c, err := net.Dial("tcp", p.API)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"type": "Mesh", "name": "late"}`
	fmt.Fprintf(c, "PUT /meshes/late HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: "+
		"100-continue\r\nContent-Length: %d\r\n\r\n", token, len(body))
	responses := bufio.NewReader(c)
	if r, err := http.ReadResponse(responses, nil); err != nil || r.StatusCode != http.StatusContinue {
		t.Fatalf("it does not read the body: %v %v", r, err)
	}
	stopped := make(chan error)
	go func() { stopped <- p.Stop() }()
	for { // until no connection is accepted any more
		probe, err := net.Dial("tcp", p.API)
		if err != nil {
			break
		}
		probe.Close()
	}
	io.WriteString(c, body)
	if r, err := http.ReadResponse(responses, nil); err != nil || r.StatusCode != http.StatusCreated {
		t.Errorf("the response to the request under way is %v %v", r, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// The first start stores a token for remote administrators; a later start stores no other.
func TestTheFirstStartMakesAnAdministratorsToken(t *testing.T) {
	options := servertest.Options{Settings: map[string]string{"general.dataDir": t.TempDir()}}
	p := servertest.Start(t, options)
	bootstrap := adminToken(t, p)
	p.Stop()
	p = servertest.Start(t, options)
	for _, server := range []struct{ url, token string }{
		{"http://" + p.API + "/globalsecrets/admin-user-token", bootstrap},
		{"http://" + p.Diagnostics + "/debug/process", bootstrap},
		{"http://" + p.API + "/meshes", ""},
		{"http://" + p.Diagnostics + "/debug/process", ""},
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
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s, token %v: %s", server.url, server.token != "", response.Status)
		}
	}
}

// A first start fails because of a setting. The next one stores the token and the defaults; what an operator deletes
// later stays deleted.
func TestAFailedFirstStartIsContinued(t *testing.T) {
	dir := t.TempDir()
	options := servertest.Options{Settings: map[string]string{
		"general.dataDir": dir, "general.tlsCertFile": filepath.Join(dir, "none.pem"),
		"general.tlsKeyFile": filepath.Join(dir, "none.key"),
	}}
	if err := servertest.TryStart(t, options); err == nil {
		t.Fatal("it starts with a certificate that does not exist")
	}
	options.Settings = map[string]string{"general.dataDir": dir}
	p := servertest.Start(t, options)
	adminToken(t, p)
	if got := names(t, p, "/meshes"); !slices.Contains(got, "default") {
		t.Errorf("there is no default mesh: %v", got)
	}
	if err := p.Admin.Delete(t.Context(), kind.GlobalSecrets, "", "admin-user-token"); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	p = servertest.Start(t, options)
	if got := names(t, p, "/globalsecrets"); slices.Contains(got, "admin-user-token") {
		t.Error("a later start stores a new token")
	}
}

// TestAnUnwrittenStoreIsNew: starts fail before their first write, and after the first one. The next start on the same
// store is still the first one.
func TestAnUnwrittenStoreIsNew(t *testing.T) {
	for name, values := range map[string]map[string]string{
		"sqlite": {"general.dataDir": t.TempDir()}, "postgres": onPostgres(t, t.TempDir()),
	} {
		t.Run(name, func(t *testing.T) {
			keyFile := filepath.Join(values["general.dataDir"], "secrets.key")
			values["store.encryption.keyFile"] = keyFile
			failingStart(t, values, keyFile)
			if _, err := sealed.MakeKeyFile(keyFile); err != nil {
				t.Fatal(err)
			}
			inTheWay := filepath.Join(values["general.dataDir"], adminsocket.Name)
			if err := os.MkdirAll(filepath.Join(inTheWay, "file"), 0o700); err != nil {
				t.Fatal(err)
			}
			failingStart(t, values, inTheWay)
			if err := os.RemoveAll(inTheWay); err != nil {
				t.Fatal(err)
			}
			p := servertest.Start(t, servertest.Options{Settings: values})
			if got := names(t, p, "/meshes"); !slices.Contains(got, "default") {
				t.Errorf("there is no default mesh: %v", got)
			}
		})
	}
}

// failingStart starts a control plane whose error has a text.
func failingStart(t *testing.T, values map[string]string, want string) {
	t.Helper()
	if err := servertest.TryStart(t, servertest.Options{Settings: values}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Fatalf("the start ends with %v, want %s in it", err, want)
	}
}

// The first administrator's token is optional.
func TestTheAdministratorsTokenCanBeSkipped(t *testing.T) {
	p := servertest.Start(t,
		servertest.Options{Settings: map[string]string{"apiServer.authn.tokens.bootstrapAdminToken": "false"}})
	if got := names(t, p, "/globalsecrets"); slices.Contains(got, "admin-user-token") {
		t.Errorf("there is %v", got)
	}
}

// adminToken reads the token that the first start stored.
func adminToken(t *testing.T, p *servertest.Plane) string {
	t.Helper()
	var secret struct{ Data []byte }
	if err := p.Admin.Get(t.Context(), "/globalsecrets/admin-user-token", nil, &secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data)
}

// An agent of Kuma requests its bootstrap on the port of proxies, over HTTPS and without a certificate.
func TestAnAgentOfKumaRequestsItsBootstrap(t *testing.T) {
	p := servertest.Start(t, servertest.Options{})
	// as kuma-dp has it
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Post("https://"+p.DataPlane+"/bootstrap", "application/json",
		strings.NewReader(`{"mesh": "default", "name": "web-1", "proxyType": "dataplane"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if want := "weft-dp run --cp-address https://" + p.DataPlane; err != nil ||
		response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), want) {
		t.Errorf("%d %v %s, want %q", response.StatusCode, err, body, want)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
