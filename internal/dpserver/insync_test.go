package dpserver

import (
	"context"
	"testing"

	"weft/internal/xds"
)

// additions is a Hub that waits for additions as often as it holds.
type additions struct {
	Hub
	left int
}

func (a *additions) AwaitAdditions(context.Context) (waited bool) {
	a.left--
	return a.left >= 0
}

func TestInSyncIncludesAdditionsThatWait(t *testing.T) {
	catalog := xds.NewCatalog()
	hub := &additions{left: 2}
	s := &Server{Config: Config{Hub: hub, Catalog: catalog}, discovery: xds.NewServer(xds.Config{Catalog: catalog})}
	s.awaitInSync(t.Context())
	if hub.left != -1 {
		t.Errorf("additions waited twice, and %d are left, want -1: no stream has acked the last ones", hub.left)
	}
	hub.left = 100
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.awaitInSync(ctx)
	if hub.left < 99 {
		t.Errorf("it waited %d times after its context ended", 100-hub.left)
	}
}
