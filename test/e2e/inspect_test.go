package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/internal/adminsocket"
)

// keyMaterial is a private key in PEM, or its first bytes in base64.
var keyMaterial = regexp.MustCompile(`PRIVATE KEY|LS0tLS1CRUdJTiB[A-Za-z0-9+/]*UFJJVkFURSBLRV|LS0tLS1CRUdJTiBFQy|LS0tLS1CRUdJTiBQUklW|LS0tLS1CRUdJTiBSU0Eg`)

// api returns the response to a GET of the control plane's HTTP API, as its administrator.
func (w *world) api(path string) (string, error) {
	return fetchBy(w.administrator(), "http://localhost"+path)
}

// administrator is a client of the administrator's socket.
func (w *world) administrator() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return adminsocket.Dial(ctx, filepath.Join(w.dir, "data", adminsocket.Name))
		},
	}}
}

func TestEnvoysOwnPagesComeThroughTheAgentWithoutKeys(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	for page, want := range map[string]string{
		"xds":                  "envoy.admin.v3.SecretsConfigDump",
		"xds?include_eds=true": "envoy.admin.v3.EndpointsConfigDump",
		"clusters":             "self_inbound_" + w.address(2) + "_20080::" + w.address(2) + ":18080::health_flags::healthy",
		"clusters?format=json": `"cluster_statuses"`,
		"stats":                "listener_manager.total_listeners_active: 1",
		"listeners":            "::" + w.address(2) + ":20080",
		"certs":                "spiffe://default.default.mesh.local/workload/web",
		"server-info":          `"LIVE"`,
	} {
		body, err := w.api("/meshes/default/dataplanes/web-1/" + page)
		if err != nil || !strings.Contains(body, want) {
			t.Errorf("%s: %v; want %q in\n%.2000s", page, err, want, body)
		}
		if found := keyMaterial.FindString(body); found != "" {
			t.Errorf("%s shows a private key: %q", page, found)
		}
		if page == "xds" && !strings.Contains(body, "W3JlZGFjdGVkXQ==") { // [redacted]
			t.Errorf("the dump has no redacted key, so that this test proves nothing:\n%.2000s", body)
		}
	}
	w.eventually("the proxy has settled", func() error {
		body, err := w.api("/meshes/default/dataplanes/web-1/_sync")
		if err != nil {
			return err
		}
		var sync struct {
			Connected, Agent, Settled bool
			LastAck                   string
		}
		if err := json.Unmarshal([]byte(body), &sync); err != nil {
			return err
		}
		if !sync.Connected || !sync.Agent || !sync.Settled || sync.LastAck == "" {
			return errors.New(body)
		}
		return nil
	})
}

func TestARefusedListenerIsShownAndServesOnceItsPortIsFree(t *testing.T) {
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	taken, err := net.Listen("tcp", w.address(2)+":20081")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	served := fmt.Sprintf("http://%s:20080/", w.address(2))
	w.eventually("the first inbound serves", func() error { return get(served) })
	w.apply(strings.Replace(server("web-1", "web", "http", 2, 20080), "inbound: [", "inbound: [{port: 20081, servicePort: 18080, serviceAddress: NET.2, protocol: http, tags: {kuma.io/service: late}}, ", 1))

	refusals := func() (string, error) {
		body, err := w.api("/meshes/default/dataplanes/web-1/_overview")
		if err != nil {
			return "", err
		}
		var overview struct {
			DataplaneInsight struct {
				Refusals []struct{ Type, Name, Message string }
			}
		}
		if err := json.Unmarshal([]byte(body), &overview); err != nil {
			return "", err
		}
		return strings.TrimPrefix(fmt.Sprint(overview.DataplaneInsight.Refusals), "[]"), nil
	}
	var said string
	w.eventually("the refusal is shown", func() error {
		if said, err = refusals(); err == nil && said == "" {
			err = errors.New("nothing is refused")
		}
		return err
	})
	for _, part := range []string{"listener", "self_inbound_" + w.address(2) + "_20081", "Address already in use"} {
		if !strings.Contains(said, part) {
			t.Errorf("what is refused is %s, want it to tell %q", said, part)
		}
	}
	if err := get(served); err != nil {
		t.Errorf("while one listener is refused the other fails: %v", err)
	}
	taken.Close()
	w.eventually("the listener serves", func() error { return get(fmt.Sprintf("http://%s:20081/", w.address(2))) })
	w.eventually("nothing is refused any more", func() error {
		if said, err = refusals(); err == nil && said != "" {
			err = errors.New(said)
		}
		return err
	})
}
