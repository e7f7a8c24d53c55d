package sealed_test

import (
	"testing"

	"weft/internal/store"
	"weft/internal/store/sealed"
	"weft/internal/testwait"
)

// TestADeletionNeedsNoKey: the deletion of a row under a key that this replica lacks is not unreadable.
func TestADeletionNeedsNoKey(t *testing.T) {
	below := openBelow(t, t.TempDir())
	s := open(t, below, keys(t, sealed.NewKey()))
	other := keys(t, sealed.NewKey()).Seal(store.Row{Key: secretKey, Body: []byte(secret)})
	if _, err := below.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	_, at, err := below.List(t.Context(), "Secret")
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Watch(t.Context(), []string{"Secret"}, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), secretKey, ""); err != nil {
		t.Fatal(err)
	}
	got := testwait.Receive(t, "the watch has the deletion", events)
	if len(got) != 1 || !got[0].Deleted || got[0].Unreadable || got[0].Row.Key != secretKey {
		t.Errorf("the events are %+v, want the deletion", got)
	}
}
