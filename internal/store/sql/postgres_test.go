package sql_test

import (
	"testing"

	"weft/internal/store"
	weft "weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/store/storetest"
)

func openPostgres(t *testing.T, at weft.Postgres, history int) *weft.Store {
	t.Helper()
	s, err := weft.Open(t.Context(), at, weft.Options{History: history})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPostgres(t *testing.T) {
	server := postgrestest.Start(t)
	storetest.Run(t, func(t *testing.T, history int) store.Store {
		return openPostgres(t, server.Database(t), history)
	})
}
