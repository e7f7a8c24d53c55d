package mirror_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"weft/internal/bubble"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
)

// TestEventsOfAnUnreadKindCostNoLists: a kind that could not be listed is listed once a second, and not for each of its
// events.
func TestEventsOfAnUnreadKindCostNoLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		u := &unread{Store: rows, some: func() bool { return false }}
		c := startMirror(t, u)
		u.bad.Store(true)
		for i := range 500 {
			if _, err := rows.Create(t.Context(), store.Row{Key: kind.Secrets.Key("default", fmt.Sprint(i)),
				Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if tries := u.tries.Load(); tries > 2 {
			t.Errorf("500 events that cannot be read cost %d lists in no time", tries)
		}
		u.bad.Store(false)
		waitUntilQuiet(t)
		if err := c.equals(rows); err != nil {
			t.Error(err)
		}
	})
}
