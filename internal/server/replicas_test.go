package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/internal/check"
	"weft/internal/pki"
	"weft/internal/server/servertest"
	"weft/internal/store/sealed"
	"weft/internal/testwait"
	"weft/kind"
)

// twoReplicas starts two replicas of a global control plane on one PostgreSQL.
func twoReplicas(t *testing.T) (first, second *servertest.Plane) {
	t.Helper()
	settings := onPostgres(t, t.TempDir())
	if _, err := sealed.MakeKeyFile(settings["store.encryption.keyFile"]); err != nil {
		t.Fatal(err)
	}
	first = servertest.Start(t, servertest.Options{Settings: settings})
	other := maps.Clone(settings)
	other["general.dataDir"] = t.TempDir()
	second = servertest.Start(t, servertest.Options{Settings: other})
	return first, second
}

// write writes a document.
func write(t *testing.T, at *servertest.Plane, document string) {
	t.Helper()
	written, err := kind.Parse([]byte(document))
	if err == nil {
		_, err = at.Admin.Put(t.Context(), written.Object, kind.ByName(written.Object.Key().Kind))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplicasReadZones: each replica of global reads a zone that is connected to another one. When that one is gone,
// the zone is unknown.
func TestReplicasReadZones(t *testing.T) {
	first, second := twoReplicas(t)
	write(t, first, `{type: Zone, name: east}`)
	east := servertest.Start(t, universal(joins(t, first, "east")))
	testwait.UntilTrue(t, "the zone has the mesh", func() bool {
		return east.Admin.Get(t.Context(), "/meshes/default", nil, &json.RawMessage{}) == nil
	})
	write(t, east, `{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, inbound: [{port: 8080, servicePort: 8081, `+
		`tags: {kuma.io/service: web}}], outbound: [{port: 10001, backendRef: {kind: MeshService, name: nothing, port: 80}}]}}`)
	checkOf := func(at *servertest.Plane) string {
		var report check.Report
		if err := at.Admin.Get(t.Context(), "/_check", nil, &report); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range report.Findings {
			fmt.Fprintf(&all, "%s of %s in %s: %s\n", f.Problem, f.Object, strings.Join(f.Zones, " "), f.Detail)
		}
		return all.String()
	}
	want := fmt.Sprintf("outbound-without-backend of Dataplane default/%s in east: ",
		copied(kind.Dataplanes, "default", "web-1", "east"))
	for _, at := range []*servertest.Plane{first, second} {
		var got string
		testwait.UntilTrue(t, "a replica has the findings of the zone", func() bool {
			got = checkOf(at)
			return strings.Contains(got, want)
		})
		if strings.Contains(got, "-unknown") {
			t.Errorf("a part is unknown: %s", got)
		}
		var layout struct{ Inbounds []struct{ Port int } }
		if err := at.Admin.Get(t.Context(), "/meshes/default/dataplanes/web-1/_layout", nil, &layout); err != nil ||
			len(layout.Inbounds) != 1 || layout.Inbounds[0].Port != 8080 {
			t.Errorf("the layout is %+v, %v", layout, err)
		}
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	var got string
	testwait.UntilTrue(t, "the zone of a stopped replica is unknown", func() bool {
		got = checkOf(second)
		return strings.Contains(got, "zone-unknown of Zone east in : ")
	})
	if strings.Contains(got, want) {
		t.Errorf("findings of an unknown zone: %s", got)
	}
}

// TestReadsWhileZonesDie: while the control planes of zones end and start again, every response of both replicas of
// global is that of the zone, or names what is unknown.
func TestReadsWhileZonesDie(t *testing.T) {
	first, second := twoReplicas(t)
	replicas := []*servertest.Plane{first, second}
	zones, options := map[string]*servertest.Plane{}, map[string]servertest.Options{}
	layouts := map[string]string{}
	for i, zone := range []string{"east", "west"} {
		write(t, first, `{type: Zone, name: `+zone+`}`)
		o := universal(joins(t, replicas[i], zone))
		o.Settings["store.type"], o.Settings["general.dataDir"] = "sqlite", t.TempDir()
		options[zone], zones[zone] = o, servertest.Start(t, o)
		awaitRead(t, zones[zone], "/meshes/default", `"default"`)
		write(t, zones[zone], fmt.Sprintf(`{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, `+
			`inbound: [{port: %d, servicePort: 1, tags: {kuma.io/service: web}}], outbound: [{port: 10001, backendRef: `+
			`{kind: MeshService, name: nothing, port: 80}}]}}`, 8080+i))
		layouts[zone] = fmt.Sprintf(`"port":%d,`, 8080+i)
	}
	for _, at := range replicas {
		for zone, layout := range layouts {
			awaitRead(t, at, "/meshes/default/dataplanes/web-1/_layout?zone="+zone, layout)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var right, unknown atomic.Int64
	for _, at := range replicas {
		readers.Go(func() {
			for ctx.Err() == nil {
				for zone, layout := range layouts {
					var got json.RawMessage
					switch err := at.Admin.Get(ctx, "/meshes/default/dataplanes/web-1/_layout?zone="+zone, nil, &got); {
					case err == nil && strings.Contains(string(got), layout):
						right.Add(1)
					case err == nil:
						t.Errorf("the layout in %s is %s", zone, got)
					case strings.Contains(err.Error(), zone):
						unknown.Add(1)
					}
				}
				var report check.Report
				if at.Admin.Get(ctx, "/_check", nil, &report) != nil {
					continue
				}
				for zone := range layouts {
					finds, isUnknown := false, false
					for _, f := range report.Findings {
						finds = finds || f.Problem == "outbound-without-backend" && slices.Contains(f.Zones, zone)
						isUnknown = isUnknown || f.Problem == "zone-unknown" && f.Object.Name == zone
					}
					if finds == isUnknown {
						t.Errorf("of %s there are findings: %v, and it is unknown: %v", zone, finds, isUnknown)
					}
				}
			}
		})
	}
	for range 2 {
		for zone := range zones {
			if err := zones[zone].Stop(); err != nil {
				t.Error(err)
			}
			before := unknown.Load()
			testwait.UntilTrue(t, zone+" is unknown", func() bool { return unknown.Load() > before+4 })
			zones[zone] = servertest.Start(t, options[zone])
			testwait.UntilTrue(t, zone+" responds", func() bool {
				return second.Admin.Get(t.Context(), "/meshes/default/dataplanes/web-1/_layout?zone="+zone, nil,
					&json.RawMessage{}) == nil
			})
		}
	}
	stop()
	readers.Wait()
	t.Logf("%d responses were right, %d unknown", right.Load(), unknown.Load())
}

// TestOnlyReplicasReadReplicas: the port between replicas takes the certificate of a live replica alone. That of a
// server, of another CA, of a replica that is not live and of the replica itself are none.
func TestOnlyReplicasReadReplicas(t *testing.T) {
	first, second := twoReplicas(t)
	var secret kind.Secret
	if err := first.Admin.Get(t.Context(), "/globalsecrets/"+pki.ServerCASecret, nil, &secret); err != nil {
		t.Fatal(err)
	}
	instance := func(at *servertest.Plane) string {
		var index struct{ InstanceID string }
		if err := at.Admin.Get(t.Context(), "/", nil, &index); err != nil {
			t.Fatal(err)
		}
		return index.InstanceID
	}
	own, err := pki.ParseCA(secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	otherText, err := pki.NewServerCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.ParseCA(otherText)
	if err != nil {
		t.Fatal(err)
	}
	replica := func(ca *pki.CA, instance string) *tls.Certificate {
		c, err := pki.NewReplicaCertificate(ca, instance, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	server, err := tls.LoadX509KeyPair(filepath.Join(first.DataDir, "server.crt"),
		filepath.Join(first.DataDir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		certificate *tls.Certificate
		accepted    bool
	}{
		"a live replica":         {replica(own, instance(second)), true},
		"no certificate":         {nil, false},
		"a server":               {&server, false},
		"another CA":             {replica(other, instance(second)), false},
		"a replica that is gone": {replica(own, "gone-1"), false},
		"the replica itself":     {replica(own, instance(first)), false},
	} {
		config := &tls.Config{InsecureSkipVerify: true}
		if test.certificate != nil {
			config.Certificates = []tls.Certificate{*test.certificate}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		request := func() (int, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+first.Replicas+"/_check",
				http.NoBody)
			if err != nil {
				return 0, err
			}
			r.Header.Set("Weft-Read", `{"action":"read"}`)
			response, err := client.Do(r)
			if err != nil {
				return 0, err
			}
			return response.StatusCode, response.Body.Close()
		}
		if test.accepted {
			testwait.UntilTrue(t, name+" is accepted", func() bool {
				status, err := request()
				return err == nil && status == http.StatusOK
			})
		} else if status, err := request(); err == nil {
			t.Errorf("%s is accepted: %d", name, status)
		}
	}
}
