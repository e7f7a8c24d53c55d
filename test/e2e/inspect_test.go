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
	"weft/internal/testwait"
)

// keyMaterial matches a private key in PEM, or its first bytes in base64.
var keyMaterial = regexp.MustCompile(`PRIVATE KEY|LS0tLS1CRUdJTiB[A-Za-z0-9+/]*UFJJVkFURSBLRV|LS0tLS1CRUdJTiBFQy|LS0tLS1CRUdJTiBQUklW|LS0tLS1CRUdJTiBSU0Eg`)

// api returns the response to a GET of the control plane's HTTP API, as its administrator.
func (w *world) api(path string) (string, error) {
	return fetchBy(w.administrator(), "http://localhost"+path)
}

// administrator returns a client of the administrator's socket.
func (w *world) administrator() *http.Client {
	socket := filepath.Join(w.plane.Data, adminsocket.Name)
	return &http.Client{Timeout: testwait.Timeout, Transport: proven{throughSocket(socket), socket}}
}

// throughSocket returns a transport through a socket, without a proof.
func throughSocket(socket string) http.RoundTripper {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return adminsocket.Dial(ctx, socket)
		},
	}
}

// proven adds the proof of an administrator's socket to requests.
type proven struct {
	http.RoundTripper
	socket string
}

// RoundTrip implements [http.RoundTripper].
func (p proven) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	adminsocket.Prove(r, p.socket)
	return p.RoundTripper.RoundTrip(r)
}

// inSync returns an error unless a proxy has acked all that the control plane has sent.
func (w *world) inSync(proxy string) error {
	body, err := w.api(proxyPath(proxy) + "/_sync")
	if err != nil {
		return err
	}
	var sync struct {
		Connected, Agent, InSync bool
		LastAck                  string
	}
	if err := json.Unmarshal([]byte(body), &sync); err != nil {
		return err
	}
	if !sync.Connected || !sync.Agent || !sync.InSync || sync.LastAck == "" {
		return errors.New(body)
	}
	return nil
}

func TestEnvoysOwnPagesComeThroughTheAgentWithoutKeys(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	for page, want := range map[string]string{
		"xds":                  "envoy.admin.v3.SecretsConfigDump",
		"xds?include_eds=true": "envoy.admin.v3.EndpointsConfigDump",
		"clusters": "self_inbound_" + w.address(2) + "_20080::" + w.address(2) +
			":18080::health_flags::healthy",
		"clusters?format=json": `"cluster_statuses"`,
		"stats":                "listener_manager.total_listeners_active: 1",
		"listeners":            "::" + w.address(2) + ":20080",
		"certs":                "spiffe://default.default.mesh.local/workload/web",
		"server-info":          `"LIVE"`,
	} {
		body := w.page("web-1", page)
		if !strings.Contains(body, want) {
			t.Errorf("%s: want %q in\n%.2000s", page, want, body)
		}
		if found := keyMaterial.FindString(body); found != "" {
			t.Errorf("%s shows a private key: %q", page, found)
		}
		if page == "xds" && !strings.Contains(body, "W3JlZGFjdGVkXQ==") { // [redacted]
			t.Errorf("the dump has no redacted key, so that this test proves nothing:\n%.2000s", body)
		}
	}
	w.eventually("the proxy is in sync", func() error { return w.inSync("web-1") })
	w.eventually("its overview has every column", func() error {
		body, err := w.api("/meshes/default/dataplanes/web-1/_overview")
		if err != nil {
			return err
		}
		var overview struct{ DataplaneInsight json.RawMessage }
		if err := json.Unmarshal([]byte(body), &overview); err != nil {
			return err
		}
		if !strings.Contains(body, `"mTLS":{"certificateExpirationTime":"`) {
			return errors.New(body)
		}
		return kumactlColumns(overview.DataplaneInsight)
	})
}

// TestZoneProxiesOwnPagesComeThroughTheirAgentsWithoutKeys sends the requests of `kumactl inspect zoneingress` and
// `zoneegress`.
func TestZoneProxiesOwnPagesComeThroughTheirAgentsWithoutKeys(t *testing.T) {
	w := newWorld(t)
	w.apply(identified("default") + "---" + externalOf("default", "api", 9))
	token, err := w.weft("generate", "zone-token", "--zone", "default", "--scope", "ingress")
	if err != nil {
		t.Fatalf("%v\n%s", err, token)
	}
	w.runZoneProxy("ingress", "zi", "{type: ZoneIngress, name: zi, networking: {address: NET.10, port: 20100, "+
		"advertisedAddress: NET.10, advertisedPort: 20100}}", token)
	w.zoneEgress("ze", 11)
	for proxy, listener := range map[string]string{"zoneingresses/zi": w.address(10) + ":20100",
		"zoneegresses/ze": w.address(11) + ":20300"} {
		for page, want := range map[string]string{
			"xds?include_eds=false": "envoy.admin.v3.ListenersConfigDump",
			"xds?include_eds=true":  "envoy.admin.v3.EndpointsConfigDump",
			"stats":                 "listener_manager.total_listeners_active: 1",
			"clusters":              "::added_via_api::",
			"clusters?format=json":  `"cluster_statuses"`,
			"listeners":             "::" + listener,
			"server-info":           `"LIVE"`,
		} {
			body := w.page(proxy, page)
			if !strings.Contains(body, want) {
				t.Errorf("%s/%s: want %q in\n%.2000s", proxy, page, want, body)
			}
			if found := keyMaterial.FindString(body); found != "" {
				t.Errorf("%s/%s shows a private key: %q", proxy, page, found)
			}
		}
	}
	for path, insight := range map[string]string{"/zoneingresses": "zoneIngressInsight",
		"/zoneegresses": "zoneEgressInsight"} {
		w.eventually(path+" shows versions and counts", func() error {
			body, err := w.api(path + "/_overview")
			if err != nil {
				return err
			}
			var list struct{ Items []map[string]json.RawMessage }
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				return err
			}
			if len(list.Items) != 1 {
				return errors.New(body)
			}
			return kumactlColumns(list.Items[0][insight])
		})
	}
}

// kumactlColumns requires the fields of the columns of `kumactl inspect`.
func kumactlColumns(insight json.RawMessage) error {
	var read struct {
		Subscriptions []struct {
			ConnectTime time.Time
			Version     struct{ KumaDP, Envoy struct{ Version string } }
			Status      struct {
				LastUpdateTime *time.Time
				Total          struct{ ResponsesSent int }
			}
		}
	}
	if err := json.Unmarshal(insight, &read); err != nil {
		return fmt.Errorf("%w in %s", err, insight)
	}
	if len(read.Subscriptions) == 0 {
		return fmt.Errorf("no subscription in %s", insight)
	}
	switch s := read.Subscriptions[len(read.Subscriptions)-1]; {
	case s.ConnectTime.IsZero(), s.Version.KumaDP.Version == "", s.Version.Envoy.Version == "",
		s.Status.LastUpdateTime == nil, s.Status.Total.ResponsesSent == 0:
		return fmt.Errorf("a column is blank: %s", insight)
	}
	return nil
}

func TestARejectedListenerIsShownAndServesOnceItsPortIsFree(t *testing.T) {
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
	w.apply(strings.Replace(server("web-1", "web", "http", 2, 20080), "inbound: [",
		"inbound: [{port: 20081, servicePort: 18080, serviceAddress: NET.2, protocol: http, tags: "+
			"{kuma.io/service: late}}, ", 1))

	nacks := func() (string, error) {
		body, err := w.api("/meshes/default/dataplanes/web-1/_overview")
		if err != nil {
			return "", err
		}
		var overview struct {
			DataplaneInsight struct {
				NACKs []struct{ Type, Name, Message string }
			}
		}
		if err := json.Unmarshal([]byte(body), &overview); err != nil {
			return "", err
		}
		return strings.TrimPrefix(fmt.Sprint(overview.DataplaneInsight.NACKs), "[]"), nil
	}
	var said string
	w.eventually("the NACK is shown", func() error {
		if said, err = nacks(); err == nil && said == "" {
			err = errors.New("there is no NACK")
		}
		return err
	})
	for _, part := range []string{"listener", "self_inbound_" + w.address(2) + "_20081", "Address already in use"} {
		if !strings.Contains(said, part) {
			t.Errorf("the rejected listener is %s, want %q in it", said, part)
		}
	}
	if err := get(served); err != nil {
		t.Errorf("while one listener is rejected, the other fails: %v", err)
	}
	taken.Close()
	w.eventually("the listener serves", func() error { return get(fmt.Sprintf("http://%s:20081/", w.address(2))) })
	w.eventually("no listener is rejected any more", func() error {
		if said, err = nacks(); err == nil && said != "" {
			err = errors.New(said)
		}
		return err
	})
}
