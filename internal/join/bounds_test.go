package join

import (
	"strings"
	"testing"
	"time"

	"weft/internal/zonesync"
	"weft/kind"
)

// TestPace: a burst is allowed, and a permanent load is slowed down.
func TestPace(t *testing.T) {
	p, now := newRateLimit(), time.Unix(1_800_000_000, 0)
	allowed := func(tries int) (n int) {
		for range tries {
			if p.allows(now) {
				n++
			}
		}
		return n
	}
	if got := allowed(2 * streamsAtOnce); got != streamsAtOnce {
		t.Errorf("%d streams at once, want %d", got, streamsAtOnce)
	}
	now = now.Add(time.Second)
	if got := allowed(2 * streamsAtOnce); got != streamsASecond {
		t.Errorf("%d a second later, want %d", got, streamsASecond)
	}
	now = now.Add(-time.Hour)
	if got := allowed(10); got != 0 {
		t.Errorf("%d after the clock was put back", got)
	}
}

// TestWithin: a zone may have a number of resources of a kind, and a number of bytes of them. At the bound, its
// resources can still be changed and deleted.
func TestWithin(t *testing.T) {
	east := kind.Owner{Zone: "east"}
	k := newLogs(kind.Owner{}, nil, nil).kinds[kind.MeshServices.Name]
	item := func(name string, bytes int) zonesync.Item {
		return zonesync.Item{Key: zonesync.Key{Owner: east, Mesh: "m", Name: name}, Body: make([]byte, bytes)}
	}
	stored := receivedOf(kind.MeshServices, item("web", 0))
	for name, c := range map[string]struct {
		has  ownerSize
		item zonesync.Item
		says string
	}{
		"room": {ownerSize{1, 10}, item("other", 10), ""},
		"one too many": {ownerSize{maxResources, 10}, item("other", 10),
			"more than 100000 resources of the kind MeshService"},
		"too large": {ownerSize{1, maxResourceBytes}, item("other", 10),
			"more than 256 MiB of the kind MeshService"},
		"what is there":       {ownerSize{maxResources, maxResourceBytes}, item("web", 10), ""},
		"what is there grows": {ownerSize{maxResources, maxResourceBytes}, item("web", 11), "more than 256 MiB"},
		"a deletion": {ownerSize{2 * maxResources, 2 * maxResourceBytes},
			zonesync.Item{Key: item("x", 0).Key, Deleted: true}, ""},
	} {
		k.rows[stored.Key()] = known{key: item("web", 0).Key, bytes: 10}
		k.sizes[east] = c.has
		err := k.checkBounds(c.item)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	delete(k.sizes, east)
	k.addSize(east, 1, 10)
	k.addSize(east, -1, -10)
	if len(k.sizes) > 0 {
		t.Errorf("an owner of nothing is kept: %v", k.sizes)
	}
}
