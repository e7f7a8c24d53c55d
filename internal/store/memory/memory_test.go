package memory_test

import (
	"testing"

	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, history int) store.Store {
		return memory.New(memory.Options{History: history})
	})
	storetest.RunFields(t, memory.New(memory.Options{}))
}
