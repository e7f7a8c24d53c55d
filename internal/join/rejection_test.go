package join_test

import (
	"strings"
	"testing"

	"weft/internal/testwait"
)

// TestRejectionsOfZones: the last rejection of a zone that exists is known until the zone is accepted.
func TestRejectionsOfZones(t *testing.T) {
	g := newGlobal(t)
	g.put(`{type: Zone, name: east}`)
	east := newZone(t, "east").join(g, token(t, "east", "ingress"))
	west := newZone(t, "west").join(g, token(t, "west", "ingress"))
	for _, z := range []*zone{east, west} {
		z.awaitTrouble(`its scope lacks "cp"`)
		z.stop()
	}
	if r := g.serves.Rejections()["east"]; r.Attempts == 0 || r.At.IsZero() ||
		!strings.HasPrefix(r.From, "127.0.0.1:") || !strings.Contains(r.Reason, `its scope lacks "cp"`) {
		t.Errorf("east: %+v", r)
	}
	if r, ok := g.serves.Rejections()["west"]; ok {
		t.Errorf("west, which does not exist: %+v", r)
	}
	newZone(t, "east").join(g).connected()
	testwait.UntilTrue(t, "no rejection of the accepted zone is known", func() bool {
		_, ok := g.serves.Rejections()["east"]
		return !ok
	})
}
