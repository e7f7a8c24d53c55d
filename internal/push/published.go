package push

import (
	"context"
	"sync"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/internal/xds"
)

// published is the state of the table that clients are sent. Its lock is the lock of the table's writer, who holds it
// from the beginning of a commit until the commit is published. So a revision that is read with the lock has everything
// of the newest snapshot.
type published struct {
	state   *graph.State
	catalog *xds.Catalog

	mu      sync.Mutex
	changed wait.Broadcast // of each commit
}

// reader reads the newest snapshot, concurrently with the table's writer. That snapshot may not be published yet.
func (p *published) reader() *table.Reader { return table.Eval(p.state.Tables.DB.Snapshot()) }

// revision returns the revision at which the newest snapshot is published.
func (p *published) revision() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.catalog.Revision()
}

// NextCommit returns a channel that is closed after the next commit.
func (p *published) NextCommit() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed.Next()
}

// await waits until the state meets a condition, and returns the revision at which that state is published.
func (p *published) await(ctx context.Context, fulfilled func(*table.Reader) bool) (revision uint64, err error) {
	for {
		p.mu.Lock()
		next, done, revision := p.changed.Next(), fulfilled(p.reader()), p.catalog.Revision()
		p.mu.Unlock()
		if done {
			return revision, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
