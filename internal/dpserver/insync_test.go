package dpserver

import (
	"context"
	"testing"

	"weft/internal/xds"
)

func TestInSyncIncludesAdditionsThatWait(t *testing.T) {
	catalog := xds.NewCatalog()
	left := 2 // times that additions wait
	s := &Server{Config: Config{Catalog: catalog, AwaitAdditions: func(context.Context) (waited bool) {
		left--
		return left >= 0
	}}, discovery: xds.NewServer(xds.Config{Catalog: catalog})}
	s.awaitInSync(t.Context())
	if left != -1 {
		t.Errorf("additions waited twice, and %d are left, want -1: no stream has acked the last ones", left)
	}
	left = 100
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.awaitInSync(ctx)
	if left < 99 {
		t.Errorf("it waited %d times after its context ended", 100-left)
	}
}
