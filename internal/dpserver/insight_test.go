package dpserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func TestSubscriptionsAreTheLastTenAndOneIsOpen(t *testing.T) {
	var i kind.DataplaneInsight
	at := time.Unix(1000, 0)
	for n := range 12 {
		connected(fmt.Sprint(n), "cp", kind.VersionOfEnvoy("1.40.0"), at.Add(time.Duration(n)*time.Minute)).apply(&i)
	}
	if n := len(i.Subscriptions); n != 10 {
		t.Fatalf("%d subscriptions are kept, want 10", n)
	}
	for n, s := range i.Subscriptions {
		if open := s.DisconnectTime == nil; open != (n == 9) {
			t.Errorf("subscription %s: open is %v; only the last one of a proxy can be", s.ID, open)
		}
	}
	disconnected("11", at.Add(time.Hour)).apply(&i)
	if d := i.Subscriptions[9].DisconnectTime; d == nil || !d.Equal(at.Add(time.Hour)) {
		t.Errorf("the last subscription ended at %v, want an hour after the start", d)
	}
	disconnected("11", at.Add(2*time.Hour)).apply(&i)
	if d := i.Subscriptions[9].DisconnectTime; !d.Equal(at.Add(time.Hour)) {
		t.Errorf("an end that was stored was moved to %v", d)
	}
}

func TestANewConnectionHasNoNACKs(t *testing.T) {
	i := kind.DataplaneInsight{NACKs: []kind.NACK{{Name: "a"}}}
	connected("1", "cp", nil, time.Unix(1000, 0)).apply(&i)
	if len(i.NACKs) != 0 {
		t.Errorf("NACKs of the last connection are kept: %v", i.NACKs)
	}
}

// failingStore is a store whose writes of insights fail, each as often as failures has it. An odd one is stored all the
// same, as by an API server whose response is lost.
type failingStore struct {
	store.Store
	failures int
}

func (f *failingStore) Create(ctx context.Context, row store.Row) (store.Row, error) {
	return f.fail(row, func() (store.Row, error) { return f.Store.Create(ctx, row) })
}

func (f *failingStore) Update(ctx context.Context, row store.Row) (store.Row, error) {
	return f.fail(row, func() (store.Row, error) { return f.Store.Update(ctx, row) })
}

func (f *failingStore) fail(row store.Row, write func() (store.Row, error)) (store.Row, error) {
	if row.Key.Kind != kind.DataplaneInsights.Name || f.failures == 0 {
		return write()
	}
	if f.failures--; f.failures%2 == 1 {
		if _, err := write(); err != nil {
			return store.Row{}, err
		}
	}
	return store.Row{}, store.ErrNoResponseToWrite
}

// unknownRows knows no row.
type unknownRows struct{ Rows }

func (unknownRows) Insight(state.ProxyKey) (*resource.Object[kind.DataplaneInsight], bool) {
	return nil, false
}

// TestInsightsSurviveFailedWrites: events of a proxy are stored in their order, and once, also where the store responds
// to no write for a while.
func TestInsightsSurviveFailedWrites(t *testing.T) {
	for failures := range 4 {
		t.Run(fmt.Sprint(failures, " failures"), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rows := &failingStore{memory.New(memory.Options{}), failures}
				defer rows.Close()
				writer := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
				for _, o := range []resource.Any{kind.Meshes.Make("", "default", kind.Mesh{}), kind.Dataplanes.Make(
					"default", "web-1", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}})} {
					if _, err := writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
						t.Fatal(err)
					}
				}
				i := newInsights(writer, unknownRows{}, slog.New(slog.DiscardHandler))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); i.run(ctx) }()
				defer func() { cancel(); <-ended }()
				key := state.ProxyKey{Mesh: "default", Name: "web-1"}
				i.noteChange(key, connected("1", "cp", nil, time.Now()))
				time.Sleep(2 * insightPeriod)
				synctest.Wait()
				i.noteChange(key, disconnected("1", time.Now()))
				i.noteChange(key, connected("2", "cp", nil, time.Now()))
				time.Sleep(time.Minute)
				row, err := rows.Get(t.Context(), kind.DataplaneInsights.Key("default", "web-1"))
				if err != nil {
					t.Fatal(err)
				}
				o, err := admission.Decode(row)
				if err != nil {
					t.Fatal(err)
				}
				var open []string
				subscriptions := o.(*resource.Object[kind.DataplaneInsight]).Spec.Subscriptions
				for _, s := range subscriptions {
					open = append(open, fmt.Sprint(s.ID, " open ", s.DisconnectTime == nil))
				}
				if got := fmt.Sprint(open); got != "[1 open false 2 open true]" {
					t.Errorf("the subscriptions are %s, want [1 open false 2 open true]", got)
				}
			})
		})
	}
}

// countingStore counts the writes of insights.
type countingStore struct {
	store.Store
	writes atomic.Int64
}

func (c *countingStore) count(row store.Row) {
	if row.Key.Kind == kind.DataplaneInsights.Name {
		c.writes.Add(1)
	}
}

func (c *countingStore) Create(ctx context.Context, row store.Row) (store.Row, error) {
	c.count(row)
	return c.Store.Create(ctx, row)
}

func (c *countingStore) Update(ctx context.Context, row store.Row) (store.Row, error) {
	c.count(row)
	return c.Store.Update(ctx, row)
}

// TestEventsOfAStartAreOneWrite: a proxy that connects, gets its certificate and rejects a resource within half a
// second costs one write, whenever others connect. Each event is stored within a second.
func TestEventsOfAStartAreOneWrite(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := &countingStore{Store: memory.New(memory.Options{})}
		defer rows.Close()
		writer := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
		put := func(o resource.Any) {
			t.Helper()
			if _, err := writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
				t.Fatal(err)
			}
		}
		put(kind.Meshes.Make("", "default", kind.Mesh{}))
		const proxies = 20
		name := func(n int) string { return fmt.Sprint("web-", n) }
		for n := range proxies {
			put(kind.Dataplanes.Make("default", name(n), kind.Dataplane{Networking: kind.Networking{
				Address: "10.0.0.1"}}))
		}
		i := newInsights(writer, unknownRows{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); i.run(ctx) }()
		defer func() { cancel(); <-ended }()
		for n := range proxies {
			key := state.ProxyKey{Mesh: "default", Name: name(n)}
			time.AfterFunc(time.Duration(n)*100*time.Millisecond, func() {
				i.noteChange(key, connected("1", "cp", nil, time.Now()))
				time.Sleep(499 * time.Millisecond)
				i.noteChange(key, nacked([]kind.NACK{{Message: "no"}}, nil))
				time.Sleep(time.Second)
				row, err := rows.Get(t.Context(), kind.DataplaneInsights.Key("default", key.Name))
				if err != nil || !strings.Contains(string(row.Body), "nacks") {
					t.Errorf("%s: %v, %s", key.Name, err, row.Body)
				}
			})
		}
		time.Sleep(time.Minute)
		if n := rows.writes.Load(); n != proxies {
			t.Errorf("%d proxies cost %d writes of insights, want one each", proxies, n)
		}
	})
}

// TestFailedInsightsAreBounded: a proxy whose Envoy rejects each push while the store takes no write is connected
// afterwards, and the events that wait for the store are bounded.
func TestFailedInsightsAreBounded(t *testing.T) {
	var waiting []insightChange
	waiting = appendChanges(waiting, connected("1", "cp", nil, time.Unix(1, 0)))
	for n := range 3 * maxPendingChanges {
		waiting = appendChanges(waiting, nacked([]kind.NACK{{Message: fmt.Sprint(n)}}, nil))
	}
	var stored kind.DataplaneInsight
	for _, c := range waiting {
		c.apply(&stored)
	}
	if len(waiting) != 2 || len(stored.Subscriptions) != 1 || len(stored.NACKs) != 1 ||
		stored.NACKs[0].Message != fmt.Sprint(3*maxPendingChanges-1) {
		t.Errorf("%d events wait and leave %+v, want the connection and the last NACK", len(waiting), stored)
	}
	for n := range 3 * maxPendingChanges {
		waiting = appendChanges(waiting, connected(fmt.Sprint(n), "cp", nil, time.Unix(int64(n), 0)))
	}
	stored = kind.DataplaneInsight{}
	for _, c := range waiting {
		c.apply(&stored)
	}
	last := stored.Subscriptions[len(stored.Subscriptions)-1]
	if len(waiting) > maxPendingChanges || last.ID != fmt.Sprint(3*maxPendingChanges-1) || last.DisconnectTime != nil {
		t.Errorf("%d events wait, and the last subscription is %+v", len(waiting), last)
	}
}

func TestLostReplica(t *testing.T) {
	at := time.Unix(10_000, 0)
	tests := []struct {
		name string
		does []insightChange
		want bool
	}{
		{"never connected", nil, false},
		{"was there when it was killed", []insightChange{connected("1", "gone", nil, at)}, true},
		{"was there when it stopped", []insightChange{connected("1", "gone", nil, at), disconnected("1", at)}, true},
		{"left it long before", []insightChange{connected("1", "gone", nil, at.Add(-time.Hour)),
			disconnected("1", at.Add(-lostConnectionLife))}, false},
		{"is connected to another one", []insightChange{connected("1", "gone", nil, at), connected("2", "cp", nil, at)},
			false},
		{"was always connected to another one", []insightChange{connected("1", "cp", nil, at)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var i kind.DataplaneInsight
			for _, happened := range test.does {
				happened.apply(&i)
			}
			if got := isLost(&i, func(instance string) bool { return instance == "gone" }, at); got != test.want {
				t.Errorf("strayed: %t, want %t", got, test.want)
			}
		})
	}
}

// TestLostReplicasAreOfThisZone: insights that zones send to global have the instances of those zones.
func TestLostReplicasAreOfThisZone(t *testing.T) {
	for zone, want := range map[string]bool{"east": true, "": false} {
		state := graph.NewState(zone)
		insight := kind.DataplaneInsights.Make("default", "web-1", kind.DataplaneInsight{})
		connected("1", "earlier", nil, time.Now()).apply(&insight.Spec)
		state.Tables.DB.Commit(func(tx *table.Tx) { state.Tables.Put(tx, insight) })
		if got := LostReplicas(state, func(instance string) bool { return instance != "cp" }); got != want {
			t.Errorf("in the zone %q replicas are lost: %t, want %t", zone, got, want)
		}
	}
}
