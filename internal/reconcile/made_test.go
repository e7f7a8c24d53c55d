package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// stored is a store around a world: a write that changes nothing is none, what a resource owns goes with it, and the
// Reconciler observes each commit.
type stored struct {
	*world
	rc *Reconciler

	mu   sync.Mutex
	made map[resource.Key]bool // what the Reconciler has written
}

func (s *stored) Put(_ context.Context, o resource.Any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[o.Key()] = true
	if before, ok := s.plan.State.Find(s.reader(), o.Key()); !ok || !s.same(before, o) {
		s.store(o)
	}
	return nil
}

func (s *stored) Create(ctx context.Context, o resource.Any) error {
	if _, ok := s.plan.State.Find(s.reader(), o.Key()); ok {
		return nil
	}
	return s.Put(ctx, o)
}

func (s *stored) Delete(_ context.Context, key resource.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(key)
	return nil
}

func (s *stored) same(a, b resource.Any) bool {
	first, err := resource.Body(a)
	if err != nil {
		s.t.Fatal(err)
	}
	second, err := resource.Body(b)
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes.Equal(first, second)
}

func (s *stored) store(objects ...resource.Any) {
	changes := s.put(objects...)
	s.rc.Observe(objects, nil, []*table.Changes{changes}, time.Now())
}

// delete removes a resource and its status.
func (s *stored) delete(key resource.Key) {
	keys := []resource.Key{key}
	if status := kind.StatusKind(key.Kind); status != nil {
		keys = append(keys, resource.Key{Kind: status.Describe().Name, Mesh: key.Mesh, Name: key.Name})
	}
	keys = slices.DeleteFunc(keys, func(key resource.Key) bool {
		_, ok := s.plan.State.Find(s.reader(), key)
		return !ok
	})
	var changes []*table.Changes
	for _, key := range keys {
		changes = append(changes, s.remove(key))
	}
	s.rc.Observe(nil, keys, changes, time.Now())
}

// TestWhatTheControlPlaneMakesComesBack: whatever the control plane has written and somebody deletes, while what it
// was made of stands, is written again at once and not at the next start.
func TestWhatTheControlPlaneMakesComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{world: newWorld(t, "241.0.0.0/8"), made: map[resource.Key]bool{}}
		s.plan.Lives = func(instance string) bool { return instance == "here" }
		s.rc = New(s.plan, s, calm{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go s.rc.Run(ctx)
		defer cancel()
		s.mu.Lock()
		s.store(meshWith("builtin-1", "builtin-1"), identityFor("default", "identity", nil), generator("all", "{{ .DisplayName }}.mesh", nil),
			kind.MeshServices.Make("default", "written", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
			s.dataplane("web-1", "10.0.0.1", "web"), s.serves("web-1", "10.0.0.1"),
			multiZoneService("many"), externalService("outside", kind.OriginZone),
			s.egress("out", 10001), s.stream("out", "here"), s.leadsOut("out", false, 10001),
			s.door("in", "10.0.0.9"), s.stream("in", "here"), s.passes("in", "10.0.0.9"),
			ownEgress("legacy"))
		s.mu.Unlock()
		quiet := func() {
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		quiet()

		// A key that is lost can't be made again for its certificate; the last good CA signs on, and a condition says so.
		delete(s.made, kind.Secrets.Key("default", "default.ca-builtin-key-builtin-1"))
		delete(s.made, kind.MeshServices.Key("default", "written")) // by a user; its state alone is written here
		expected := []string{
			"MeshService", "MeshServiceStatus", "MeshMultiZoneServiceStatus", "MeshExternalServiceStatus", "MeshIdentityStatus",
			"MeshTrust", "MeshTrustStatus", "MeshStatus", "SigningCA", "Secret", "ZoneEgressStatus", "MeshZoneAddress", "MeshEgressAddress",
		}
		kinds := map[string]bool{}
		for key := range s.made {
			kinds[key.Kind] = true
		}
		for _, want := range expected {
			if !kinds[want] {
				t.Errorf("no %s was made, so that its deletion is not tried", want)
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(s.made), func(a, b resource.Key) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) }) {
			before, ok := s.plan.State.Find(s.reader(), key)
			if !ok {
				continue
			}
			s.mu.Lock()
			s.delete(key)
			s.mu.Unlock()
			quiet()
			after, ok := s.plan.State.Find(s.reader(), key)
			switch {
			case !ok:
				t.Errorf("%s was deleted, and is not there again", key)
			case key.Kind == "MeshServiceStatus" && !s.same(before, after):
				t.Errorf("%s was deleted, and came back as another", key)
			}
		}
	})
}
