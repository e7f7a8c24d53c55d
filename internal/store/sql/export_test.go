package sql

import (
	"context"
	"fmt"
)

// SchemaVersion is the newest one.
var SchemaVersion = len(migrations)

// LimitPages lets the database grow to so many pages of 4 KiB, as a full disk would.
func (s *Store) LimitPages(ctx context.Context, pages int) error {
	_, err := s.write.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", pages))
	return err
}
