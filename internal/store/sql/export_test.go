package sql

import (
	"context"
	"fmt"
)

// SchemaVersion is the newest version of the schema.
var SchemaVersion = len(migrations)

// LimitPages bounds the database at a number of pages of 4 KiB, as a full disk does.
func (s *Store) LimitPages(ctx context.Context, pages int) error {
	_, err := s.write.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", pages))
	return err
}
