package join

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/store/memory"
	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/kind"
)

// TestItemsOfAZoneWait: items of a zone beyond its rate wait for their turn, and nothing is rejected. Those of another
// zone do not wait for them.
func TestItemsOfAZoneWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		defer func() { _ = rows.Close() }()
		g := &Global{GlobalConfig: GlobalConfig{Writer: admission.New(rows, admission.Options{}),
			Log: slog.New(slog.DiscardHandler)}, logs: newLogs(kind.Owner{}, rows, nil)}
		stored := func(zone *zonePeer, within time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			began := time.Now()
			k := &peerStream{kind: kind.ZoneIngresses}
			g.peerKind(zone, k).apply(ctx, make([]zonesync.Item, itemsASecond))
			return time.Since(began)
		}
		newZone := func(name string) *zonePeer {
			return &zonePeer{name: name, items: wait.NewRate(itemsAtOnce, itemsASecond)}
		}
		busy, idle := newZone("busy"), newZone("idle")
		if after := stored(busy, time.Hour); after != 0 {
			t.Errorf("the first items wait for %s", after)
		}
		busy.items.Charge(itemsAtOnce-itemsASecond, time.Now(), math.MaxInt64)
		for range 2 {
			if after := stored(busy, time.Hour); after != time.Second {
				t.Errorf("further ones wait for %s, want %s", after, time.Second)
			}
		}
		if after := stored(busy, time.Millisecond); after != time.Millisecond {
			t.Errorf("they wait for %s after the stream has ended", after)
		}
		if after := stored(idle, time.Hour); after != 0 {
			t.Errorf("those of another zone wait for %s", after)
		}
	})
}
