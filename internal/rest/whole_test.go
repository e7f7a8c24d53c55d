package rest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"weft/internal/bubble"
)

// TestWholeListsWaitForEachOther: a request for a whole list waits while the maximum number is being generated; a page
// does not wait.
func TestWholeListsWaitForEachOther(t *testing.T) {
	w := newWorld(t, newStore(t)) // its servers are no part of the bubble
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(w.config())
		get := func(ctx context.Context, target string) int {
			recorder := httptest.NewRecorder()
			AsAdministrator(a.Guard.identify(http.HandlerFunc(a.route))).ServeHTTP(recorder,
				httptest.NewRequestWithContext(ctx, "GET", target, nil))
			return recorder.Code
		}
		for range maxWhole {
			a.whole <- struct{}{}
		}
		if code := get(t.Context(), "/meshes?size=1"); code != http.StatusOK {
			t.Errorf("a page gets %d", code)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if get(gone, "/meshes"); len(a.whole) != maxWhole {
			t.Errorf("a client that has gone leaves %d lists, want %d", len(a.whole), maxWhole)
		}
		list := make(chan int)
		go func() { list <- get(t.Context(), "/meshes") }()
		synctest.Wait()
		select {
		case <-list:
			t.Fatal("a list is made beyond the bound")
		default:
		}
		<-a.whole
		if code := <-list; code != http.StatusOK {
			t.Errorf("a list that has waited gets %d", code)
		}
		if len(a.whole) != maxWhole-1 {
			t.Errorf("%d lists are being made at the end, want %d", len(a.whole), maxWhole-1)
		}
	})
}
