package push

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// startHub starts one instance on a shared store, whose clients ack when the waiter says so.
func startHub(t *testing.T, rows store.Store, id string, s AckWaiter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log := slog.New(slog.DiscardHandler)
	writer := admission.New(rows, admission.Options{Zone: "default", Patches: envoy.TypeNames(nil)})
	g := graph.NewState("default")
	hub := NewHub(g, xds.NewCatalog(), log)
	member, err := replica.Join(ctx, replica.Config{
		ID: id, Store: rows, Writer: writer, LocalAcked: hub.Acks.Here, Lost: Bound, Log: log,
		HasLostClients: func(string) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	hub.Use(ctx, Callbacks{
		Waiter: s, Replicas: member,
		Version: func(ctx context.Context, key resource.Key) (string, error) {
			row, err := rows.Get(ctx, key)
			return row.Version, err
		},
		RemoveListeners: func(ctx context.Context, key state.ProxyKey, listeners []string) error {
			return admission.Modify(ctx, writer, kind.DataplaneListenerStatuses, key.Mesh, key.Name,
				func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
					return o.Spec.Remove(listeners)
				})
		},
	})
	wait, err := mirror.Start(ctx, mirror.Config{Store: rows, Kinds: g.Tables.Kinds(), Decode: admission.Decode,
		Apply: hub.Apply, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run, led := make(chan struct{}), make(chan struct{})
	go func() { defer close(run); member.Run(ctx) }()
	go func() { defer close(led); member.Lead(ctx, hub.Drains.Run) }()
	stop = func() { cancel(); <-run; <-led; wait() }
	t.Cleanup(stop)
	return stop
}

// atOnce is an AckWaiter whose clients have always acked.
type atOnce struct{}

func (atOnce) WaitAcked(context.Context, []*xds.Stream, uint64, func(xds.NACK) bool) (int, error) {
	return 0, nil
}

// storeAll writes resources of users and of the control plane.
func storeAll(t *testing.T, rows store.Store, objects ...resource.Any) {
	t.Helper()
	writer := admission.New(rows, admission.Options{Zone: "default", Patches: envoy.TypeNames(nil)})
	for _, o := range objects {
		if _, err := writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// listenersOf returns the number of listeners in the stored listener status of the Dataplane blue.
func listenersOf(t *testing.T, rows store.Store) int {
	t.Helper()
	row, err := rows.Get(t.Context(), kind.DataplaneListenerStatuses.Key(mesh, "blue"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		t.Fatal(err)
	}
	return len(o.(*resource.Object[kind.DataplaneListenerStatus]).Spec.Inbounds)
}

func TestADrainWaitsForTheClientsOfEveryInstance(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		storeAll(t, rows, kind.Meshes.Make("", mesh, kind.Mesh{}), server("blue", "10.0.0.1", "blue", 8080),
			serving("blue", "10.0.0.1", 8080))
		slow := make(onDemand)
		startHub(t, rows, "a", atOnce{})
		time.Sleep(2 * time.Second) // a leads
		startHub(t, rows, "b", slow)
		time.Sleep(2 * time.Second)

		storeAll(t, rows, server("blue", "10.0.0.1", "blue", 8081))
		time.Sleep(20 * time.Second)
		if n := listenersOf(t, rows); n != 1 {
			t.Fatalf("%d listeners are served while clients of the other instance may be sent there, want 1", n)
		}
		slow <- struct{}{}
		time.Sleep(time.Second)
		if n := listenersOf(t, rows); n != 0 {
			t.Errorf("%d listeners are served though every client has acked", n)
		}
	})
}

func TestADrainOutlivesTheInstanceThatBeganIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		storeAll(t, rows, kind.Meshes.Make("", mesh, kind.Mesh{}), server("blue", "10.0.0.1", "blue", 8080),
			serving("blue", "10.0.0.1", 8080))
		stop := startHub(t, rows, "a", never{})
		time.Sleep(2 * time.Second)
		startHub(t, rows, "b", atOnce{})
		storeAll(t, rows, server("blue", "10.0.0.1", "blue", 8081))
		time.Sleep(2 * time.Second)
		stop()
		time.Sleep(20 * time.Second)
		if n := listenersOf(t, rows); n != 1 {
			t.Errorf("%d listeners are served while clients of the one that stopped may be anywhere, want 1", n)
		}
		time.Sleep(Bound - 20*time.Second + 2*time.Second)
		if n := listenersOf(t, rows); n != 0 {
			t.Errorf("%d listeners are served after the bound", n)
		}
	})
}
