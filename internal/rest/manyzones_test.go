package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"weft/internal/admission"
	"weft/internal/check"
	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/preview"
	"weft/internal/push"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/testwait"
	"weft/internal/view/viewtest"
	"weft/internal/wire"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// globalReplica is a replica of a global control plane, whose zones are in this process. A caller is the zone that it
// states.
type globalReplica struct {
	*world
	queries *zonequery.Global
	conn    *grpc.ClientConn
	compared
}

// compared counts the diffs that zones are queried for at once.
type compared struct{ present, most *atomic.Int64 }

// countedZones are the zones of a global control plane.
type countedZones struct {
	*zonequery.Global
	compared
}

func (z countedZones) Diff(ctx context.Context, zone string, change preview.Received, options preview.Options,
	most int) (*preview.Diff, error) {
	n := z.present.Add(1)
	defer z.present.Add(-1)
	for former := z.most.Load(); n > former && !z.most.CompareAndSwap(former, n); former = z.most.Load() {
	}
	return z.Global.Diff(ctx, zone, change, options, most)
}

func newGlobalReplica(t *testing.T, rows store.Store) *globalReplica {
	t.Helper()
	g := &globalReplica{world: newWorldOf(t, rows, ""), compared: compared{&atomic.Int64{}, &atomic.Int64{}}}
	g.queries = zonequery.NewGlobal(func(ctx context.Context) (string, error) {
		return metadata.ValueFromIncomingContext(ctx, "zone")[0], nil
	}, func(string) string { return "" }, nil)
	config := g.config()
	config.Zone, config.RemoteZones = "", countedZones{g.queries, g.compared}
	g.handler = New(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterZoneQueriesServer(server, g.queries)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	if g.conn, err = grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.conn.Close() })
	return g
}

// asZone is a connection to global of one zone. Several share the transport.
type asZone struct {
	*grpc.ClientConn
	name string
}

func (z asZone) NewStream(ctx context.Context, d *grpc.StreamDesc, method string,
	o ...grpc.CallOption) (grpc.ClientStream, error) {
	return z.ClientConn.NewStream(metadata.AppendToOutgoingContext(ctx, "zone", z.name), d, method, o...)
}

// join connects a zone with a client of a number of services until the test ends, and returns the API of the zone when
// it can be queried.
func (g *globalReplica) join(t *testing.T, name string, services int) *world {
	t.Helper()
	var inspector *push.Inspector
	var checks *check.Stage
	reads, stop, err := viewtest.New(memory.New(memory.Options{}), name,
		func(state *graph.State) { inspector, checks = push.NewInspector(state), check.NewStage(state) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	writer := admission.New(reads.Store(), admission.Options{Zone: name, Joined: true, Patches: envoy.TypeNames(nil)})
	mesh := kind.Meshes.Make("", "default", kind.Mesh{})
	mesh.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal, kind.DisplayName: "default"}
	body, err := resource.Body(mesh)
	if err == nil {
		err = writer.Receive(t.Context(), admission.Received{Kind: kind.Meshes, Name: "default", Body: body})
	}
	client := kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.9"}}
	for i := range services {
		of := fmt.Sprintf("web-%03d", i)
		client.Networking.Outbound = append(client.Networking.Outbound, kind.Outbound{Port: uint32(10001 + i),
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: of, Port: 80}})
		if err == nil {
			_, err = writer.Put(t.Context(), kind.MeshServices.Make("default", of, kind.MeshService{
				Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: of}},
				Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}}), admission.Change{})
		}
	}
	if err == nil {
		_, err = writer.Put(t.Context(), kind.Dataplanes.Make("default", "client", client), admission.Change{})
	}
	if err == nil {
		_, err = reads.Read(t.Context()) // the table has the writes
	}
	if err != nil {
		t.Fatal(err)
	}
	zone := zonequery.NewZone(name, inspector, NewZoneDiffs(writer, inspector))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	api := &world{store: reads.Store(), view: reads, writer: writer, log: &bytes.Buffer{}}
	config := api.config()
	config.Zone, config.Inspector, config.Connections = name, inspector, pages{}
	config.Findings = evaluated{checks, check.World{Ended: config.Expired}}
	api.handler = New(config)
	go func() { defer close(done); zone.Follow(ctx, asZone{g.conn, name}, NewReads(config)) }()
	t.Cleanup(func() { cancel(); <-done })
	g.awaits(t, name)
	return api
}

// evaluated are the findings of a state, evaluated for each report.
type evaluated struct {
	checks *check.Stage
	world  check.World
}

func (e evaluated) Report(context.Context) (*check.Report, error) {
	e.world.Now = time.Now()
	return check.Run(e.checks, e.checks.Tables.DB.Snapshot(), e.world), nil
}

func (evaluated) OfReplica() []check.Finding { return nil }

// awaits returns when a zone can be queried.
func (g *globalReplica) awaits(t *testing.T, zone string) {
	t.Helper()
	testwait.Until(t, zone+" can be queried", func() error {
		_, err := g.queries.Explain(t.Context(), zone, envoysim.Request{From: state.ProxyKey{Name: "no"}})
		if resource.CodeOf(err) != resource.Unavailable {
			return nil
		}
		return err
	})
}

// hostile connects a zone that responds to every request with the same response.
func (g *globalReplica) hostile(t *testing.T, zone string, response *wire.ZoneResponse) {
	t.Helper()
	stream, err := wire.NewZoneQueriesClient(asZone{g.conn, zone}).Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			q, err := stream.Recv()
			if err != nil {
				return
			}
			again := &wire.ZoneResponse{Id: q.Id, Document: response.Document, Problem: response.Problem,
				Status: response.Status, ContentType: response.ContentType}
			if stream.Send(again) != nil {
				return
			}
		}
	}()
	g.awaits(t, zone)
}

// slower is a change that each zone's client gets for every service.
const slower = `{"apply":[{"type":"MeshTimeout","mesh":"default","name":"slower","spec":{"to":[{"targetRef":` +
	`{"kind":"Mesh"},"default":{"http":{"requestTimeout":"9s"}}}]}}]}`

// compare returns the diffs of a change by zone, and the size of the response.
func (g *globalReplica) compare(t *testing.T) (map[string]preview.Diff, int) {
	t.Helper()
	r := g.do("POST", "/_diff?fields=true", slower, nil)
	body := text(r)
	var response DiffResponse
	if err := json.Unmarshal([]byte(body), &response); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s %v %.300s", r.Status, err, body)
	}
	zones, last := map[string]preview.Diff{}, ""
	for _, d := range response.Zones {
		if d.Zone <= last {
			t.Errorf("the zone %s is after the zone %s", d.Zone, last)
		}
		zones[d.Zone], last = d, d.Zone
	}
	return zones, len(body)
}

// TestGlobalComparesManyZones: 400 zones are compared, some at a time. A zone with a larger effect leaves out entries,
// and counts them. A zone whose response is beyond its bounds is an unknown one, and costs the others nothing.
func TestGlobalComparesManyZones(t *testing.T) {
	const zones, services = 400, 300
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	small := `{"groups":[{"proxies":1,"names":["a"]}],"zone":"z-000","problem":"none"}`
	entries := strings.Repeat("{},", 499) + "{}"
	wide := `{"values":[` + entries + `],"callers":[` + entries + `],"requests":[` + entries + `]}`
	hostile := map[string]*wire.ZoneResponse{
		"h-bytes": {Document: []byte(small + strings.Repeat(" ", maxZoneBytes))},
		"h-count": {Document: []byte(`{"groups":[{"proxies":-1}]}`)},
		"h-larger": {Document: []byte(`{"groups":[` + strings.Repeat("{},", 20_000) + `{"values":[` +
			strings.Repeat("{},", 5_000) + `{}]}]}`)},
		"h-values": {Document: []byte(`{"groups":[{"values":[` + strings.Repeat("{},", 9_000) + `{}],"names":["` +
			strings.Repeat(`","`, 99) + `"]}]}`)},
		"h-fields": {Document: []byte(`{"groups":[{"resources":[{"fields":[` + strings.Repeat("{},", 9_000) +
			`{}]}]}]}`)},
		"h-wide":    {Document: []byte(`{"groups":[` + wide + strings.Repeat(","+wide, 15) + `]}`)},
		"h-text":    {Document: []byte("no JSON")},
		"h-problem": {Problem: strings.Repeat("é", 1<<20)},
		"h-name":    {Document: []byte(small)},
	}
	for zone, response := range hostile {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		g.hostile(t, zone, response)
	}
	for i := range zones {
		name := fmt.Sprintf("z-%03d", i)
		g.put(t, "/zones/"+name, `{"type":"Zone"}`)
		n := 1
		if i%100 == 0 {
			n = services
		}
		if i == 77 {
			continue // it is disconnected
		}
		g.join(t, name, n)
	}
	began := time.Now()
	got, size := g.compare(t)
	t.Logf("%d zones in %v, %d bytes", len(got), time.Since(began), size)
	if len(got) != zones+len(hostile) || size > maxZonesBytes {
		t.Errorf("%d zones in %d bytes", len(got), size)
	}
	if most := g.most.Load(); most > zonesAtOnce || most < 2 {
		t.Errorf("%d zones are queried at once, want %d at most", most, zonesAtOnce)
	}
	const share = maxZonesBytes / (zones + 9)
	for name, d := range got {
		document, err := json.Marshal(d)
		if err != nil || len(document) > share {
			t.Errorf("%s: %d bytes, %v; want %d at most", name, len(document), err, share)
		}
		entries := 0
		for i := range d.Groups {
			entries += len(d.Groups[i].Values) + len(d.Groups[i].Resources)
		}
		switch {
		case hostile[name] != nil:
		case name == "z-077":
			if !strings.Contains(d.Problem, "it is not connected to the global control plane") {
				t.Errorf("%s: %+v", name, d)
			}
		case strings.HasSuffix(name, "00"):
			if len(d.Groups) != 1 || d.Problem != "" || d.Groups[0].More == 0 || entries < 100 ||
				entries+d.Groups[0].More != 2*services {
				t.Errorf("%s: %d entries and %+v more", name, entries, d.Groups[0].More)
			}
		default:
			if len(d.Groups) != 1 || d.Problem != "" || entries != 2 || d.Groups[0].More != 0 ||
				d.Groups[0].Values[0].After.SetBy == "" {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
	for zone, want := range map[string]string{
		"h-bytes":   "at most " + fmt.Sprint(share) + " are read",
		"h-count":   "negative count",
		"h-larger":  "",
		"h-fields":  "",
		"h-values":  "",
		"h-wide":    "with all its fields, at most " + fmt.Sprint(share) + " are read",
		"h-text":    "invalid character",
		"h-problem": "ééé...",
		"h-name":    "",
	} {
		d := got[zone]
		if (d.Problem == "") != (want == "") || !strings.Contains(d.Problem, want) || d.Zone != zone ||
			len(d.Problem) > 5000 {
			t.Errorf("%s: %.200q, %d groups, want %q", zone, d.Problem, len(d.Groups), want)
		}
		for i := range d.Groups {
			if g := &d.Groups[i]; len(d.Groups) > 200 || len(g.Values) > 500 || len(g.Names) > 10 ||
				len(g.Resources) > 0 && len(g.Resources[0].Fields) > 100 {
				t.Errorf("%s: %d groups, %d values, %d names", zone, len(d.Groups), len(g.Values), len(g.Names))
			}
		}
	}
	if d := got["h-larger"]; d.More != 20_001-200 {
		t.Errorf("%d groups are left out", d.More)
	}
}

// TestReplicasOfGlobalCompareTheirZones: each replica of global compares the zones that are connected to it, and names
// the others.
func TestReplicasOfGlobalCompareTheirZones(t *testing.T) {
	rows := newStore(t)
	replicas := []*globalReplica{newGlobalReplica(t, rows), newGlobalReplica(t, rows)}
	replicas[0].put(t, "/meshes/default", `{"type":"Mesh"}`)
	for i, zone := range []string{"east", "north", "south", "west"} {
		replicas[0].put(t, "/zones/"+zone, `{"type":"Zone"}`)
		replicas[i%2].join(t, zone, 300)
	}
	for i, g := range replicas {
		got, _ := g.compare(t)
		for j, zone := range []string{"east", "north", "south", "west"} {
			d := got[zone]
			if known := i == j%2; known != (d.Problem == "" && len(d.Groups) == 1 && d.Groups[0].More == 0) ||
				!known && !strings.Contains(d.Problem, "it is not connected to the global control plane") {
				t.Errorf("replica %d: the zone %s: %.500q, %d groups", i, zone, d.Problem, len(d.Groups))
			}
		}
	}
}
