package scenario

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// fakeGlobal is a global control plane that forwards the items of zones without any check. Its tokens are the names of
// the zones.
type fakeGlobal struct {
	wire.UnimplementedZoneSyncServer
	mu      sync.Mutex
	logs    map[string]*zonesync.Log
	streams map[*fakeStream]bool
}

// fakeStream is one zone's stream of one kind.
type fakeStream struct {
	wire.ZoneSync_SyncServer
	session  *zonesync.Session
	receiver *zonesync.Receiver
	log      *zonesync.Log
}

// Sync serves one stream.
func (g *fakeGlobal) Sync(server wire.ZoneSync_SyncServer) error {
	md, _ := metadata.FromIncomingContext(server.Context())
	zone := kind.Owner{Zone: strings.TrimPrefix(md.Get("authorization")[0], "Bearer ")}
	first, err := server.Recv()
	if err != nil {
		return err
	}
	info := kind.ByName(first.GetHello().GetKind()).Describe()
	s := &fakeStream{ZoneSync_SyncServer: server}
	down := zonesync.Direction{Sync: info.Sync, To: zone}
	if up := (zonesync.Direction{Sync: info.Sync, From: zone}); up.Open() {
		s.receiver = zonesync.NewReceiver(up)
	}
	g.mu.Lock()
	if s.log = g.logs[info.Name]; s.log == nil {
		s.log = zonesync.NewLog(7)
		s.log.Open()
		g.logs[info.Name] = s.log
	}
	s.session = zonesync.NewSession(zonesync.Side{Kind: info.Name}, zone, zonesync.NewSender(s.log, down), s.receiver)
	g.streams[s] = true
	g.mu.Unlock()
	for frame := first; ; {
		if err := g.step(s, frame); err != nil {
			return err
		}
		if frame, err = server.Recv(); err != nil {
			return err
		}
	}
}

// step handles a frame, and then sends its items to all zones. They are in the log before another stream looks for new
// ones: no later frame has to come.
func (g *fakeGlobal) step(s *fakeStream, f *wire.Frame) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := s.session.Step(f); err != nil {
		return err
	}
	if err := s.work(); err != nil {
		delete(g.streams, s)
		return err
	}
	for stream := range g.streams {
		if err := stream.work(); err != nil {
			delete(g.streams, stream)
		}
	}
	return nil
}

func (s *fakeStream) work() error {
	for {
		ready, err := s.session.Ready()
		if err != nil {
			return err
		}
		for _, frame := range ready.Frames {
			if err := s.Send(frame); err != nil {
				return err
			}
		}
		switch {
		case ready.List:
			s.receiver.Digest(nil)
		case ready.Apply != nil:
			for _, item := range ready.Apply.Items {
				if _, err := s.log.Put(item, time.Now()); err != nil {
					return err
				}
			}
			s.receiver.NoteApplied(ready.Apply, nil)
		default:
			return nil
		}
	}
}

// startGlobal serves the fake global over HTTP, and zone sync over TLS.
func startGlobal(t *testing.T) *mesh.Plane {
	certificate, root, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	gs := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	wire.RegisterZoneSyncServer(gs, &fakeGlobal{logs: map[string]*zonesync.Log{}, streams: map[*fakeStream]bool{}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = gs.Serve(listener) }()
	t.Cleanup(gs.Stop)
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/tokens/zone" {
			_, after, _ := strings.Cut(string(body), `"zone":"`)
			body = []byte(after[:strings.Index(after, `"`)])
		}
		_, _ = w.Write(body)
	})
	return &mesh.Plane{Admin: serveAdmin(t, api), ZoneSync: listener.Addr().String(), Roots: rootsOf(root)}
}

func TestZonesGetEachOthersServices(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var progress bytes.Buffer
	run := &zonesRun{
		zonesScenario: &zonesScenario{Zones: 4, Services: 5, Idle: time.Millisecond, During: 3 * time.Second},
		Environment:   &Environment{Progress: &progress},
		global:        startGlobal(t),
	}
	report, err := run.measure(ctx)
	if err != nil {
		t.Fatalf("%v after:\n%s", err, &progress)
	}
	if want := int64(4 * 3 * 5); report.JoinItems != want {
		t.Errorf("%d items reached 4 zones of 5 services, want %d: each gets those of the others, once",
			report.JoinItems, want)
	}
	if report.OneBytes < 4*5*100 || report.JoinBytes < report.JoinItems*100 {
		t.Errorf("impossible values: %+v", report)
	}
	if report.ChangesPerSecond <= 0 || report.ChangeP50Millis <= 0 || report.ChangeP99Millis < report.ChangeP50Millis {
		t.Errorf("impossible values of changes: %+v", report)
	}
}

// TestZonesConnectAgain: zones that were disconnected get everything again, and no closed stream counts as a failure.
func TestZonesConnectAgain(t *testing.T) {
	global := startGlobal(t)
	zones, err := NewZones(meshName, 3, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	for want := int64(3 * 2 * 2); want <= 2*3*2*2; want += 3 * 2 * 2 {
		if err := zones.Connect(t.Context(), global.Admin, global.ZoneSync, global.Roots); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "every zone has the services of the others", func() error {
			if got := zones.ReceivedVersions(); got < want {
				return fmt.Errorf("%d services received, want %d", got, want)
			}
			return nil
		})
		zones.Close()
	}
	if err := zones.Err(); err != nil {
		t.Error(err)
	}
}

func TestASimulatedServiceIsValid(t *testing.T) {
	service := simulatedService(meshName, "zone-1", 3)
	for _, p := range kind.MeshServices.Prepare(service) {
		t.Errorf("%s %s", p.Field, p.Reason)
	}
	body, err := resource.Body(service)
	if err != nil || !strings.Contains(string(body), ".service-3.80.load.ms") {
		t.Errorf("its body is %s, %v", body, err)
	}
}

func TestASimulatedPodIsValid(t *testing.T) {
	for _, p := range kind.Dataplanes.Prepare(simulatedPod(meshName, "zone-1", 70_000, 3)) {
		t.Errorf("%s %s", p.Field, p.Reason)
	}
}

func TestAcrossReportMarksValuesOverBudget(t *testing.T) {
	report := &AcrossReport{ServiceP99Millis: 299, AddressP99Millis: 301, AddressItems: 1, FewBytes: 100,
		ManyBytes: 100}
	var table bytes.Buffer
	if err := Print(&table, report); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		moves := strings.Contains(line, "an ingress moves: last proxy of the other zone has it, p99")
		if over := strings.Contains(line, "OVER"); over != moves {
			t.Errorf("over budget is the address alone, and the table says: %s", line)
		}
	}
}
