package metered

import (
	"errors"
	"testing"
	"time"

	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/resource"
)

func TestEveryOperationIsObservedWithItsError(t *testing.T) {
	var seen []string
	missing := 0
	s := New(memory.New(memory.Options{}), func(operation string, took time.Duration, err error) {
		seen = append(seen, operation)
		if errors.Is(err, store.ErrNotFound) {
			missing++
		}
		if took < 0 {
			t.Errorf("%s took %v", operation, took)
		}
	})
	key := resource.Key{Kind: "Mesh", Name: "default"}
	s.Get(t.Context(), key)
	row, _ := s.Create(t.Context(), store.Row{Key: key, Body: []byte("{}")})
	s.Update(t.Context(), row)
	_, cursor, _ := s.List(t.Context(), "Mesh")
	s.Watch(t.Context(), []string{"Mesh"}, cursor)
	s.Delete(t.Context(), key, "")
	want := []string{"get", "create", "update", "list", "watch", "delete"}
	if len(seen) != len(want) || missing != 1 {
		t.Fatalf("observed %v with %d rows missing, want %v and one", seen, missing, want)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("observed %v, want %v", seen, want)
		}
	}
}
