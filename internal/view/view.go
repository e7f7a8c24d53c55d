// Package view reads resources from memory, where the mirror has brought them, instead of from the store.
//
// What this instance has written is there for reads after the write has returned: a reader waits
// for the milliseconds that the mirror lags, and for no writes of others. Where the mirror lags
// for longer than [Timeout], the store itself is read, at the cost of a list. What other instances write
// is there a few milliseconds later.
package view

import (
	"context"
	"errors"
	"sync"
	"time"

	"weft/internal/admit"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/resource"
)

// Timeout is how long a reader waits for the mirror before it turns to the store.
const Timeout = time.Second

// View answers reads. Its methods may be called at the same time.
type View struct {
	state *graph.State
	rows  store.Store

	mu sync.Mutex
	// unseen is what this instance has written and the state does not show yet, by kind.
	unseen  map[string]map[resource.Key]write
	writes  uint64         // how many were noted
	applied wait.Broadcast // of each batch
}

// write is one that the state does not show yet.
type write struct {
	version string // of the row; empty: it was deleted
	number  uint64
	at      time.Time
}

// New answers a view of a state that mirrors a store.
func New(state *graph.State, rows store.Store) *View {
	return &View{state: state, rows: rows, unseen: map[string]map[resource.Key]write{}}
}

// Store answers the store that all of this instance must write through, so that the view knows what to
// wait for.
func (v *View) Store() store.Store { return noting{v.rows, v} }

// noting is a store whose writes the view hears of.
type noting struct {
	store.Store
	view *View
}

// Create implements [store.Store].
func (n noting) Create(ctx context.Context, row store.Row) (store.Row, error) {
	stored, err := n.Store.Create(ctx, row)
	return stored, n.note(row.Key, stored.Version, err)
}

// Update implements [store.Store].
func (n noting) Update(ctx context.Context, row store.Row) (store.Row, error) {
	stored, err := n.Store.Update(ctx, row)
	return stored, n.note(row.Key, stored.Version, err)
}

// Delete implements [store.Store].
func (n noting) Delete(ctx context.Context, key resource.Key, version string) error {
	return n.note(key, "", n.Store.Delete(ctx, key, version))
}

func (n noting) note(key resource.Key, version string, err error) error {
	if err == nil && n.view.state.HasRows(key.Kind) {
		n.view.note(key, version)
	}
	return err
}

// note remembers a write, unless the state shows it already. A row of which an earlier write is still on
// its way may look as wanted and yet change before this one arrives.
func (v *View) note(key resource.Key, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, onItsWay := v.unseen[key.Kind][key]
	if !onItsWay && v.shown(key) == version {
		return
	}
	if v.unseen[key.Kind] == nil {
		v.unseen[key.Kind] = map[resource.Key]write{}
	}
	v.writes++
	v.unseen[key.Kind][key] = write{version, v.writes, time.Now()}
}

// shown is the version of a row in the state; empty: there is none.
func (v *View) shown(key resource.Key) string {
	o, ok := v.state.Find(table.Eval(v.state.DB.Snapshot()), key)
	if !ok {
		return ""
	}
	return o.Envelope().Version
}

// Applied tells the view of a batch that the state shows now.
func (v *View) Applied(b mirror.Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range b.Put {
		v.seen(o.Key(), o.Envelope().Version)
	}
	for _, key := range b.Removed {
		v.seen(key, "")
	}
	v.applied.Send()
}

func (v *View) seen(key resource.Key, version string) {
	if w, ok := v.unseen[key.Kind][key]; ok && w.version == version {
		delete(v.unseen[key.Kind], key)
	}
}

// Read answers the resources of some kinds, with all that this instance has written of them so far; those
// of other kinds may be missing. No kinds mean all. It fails where ctx ends, or where the mirror is stuck
// and the store fails.
func (v *View) Read(ctx context.Context, kinds ...string) (*Rows, error) {
	if len(kinds) == 0 {
		kinds = v.state.Kinds()
	}
	v.mu.Lock()
	last := v.writes
	v.mu.Unlock()
	for {
		oldest, applied := v.oldest(kinds, last)
		if oldest.IsZero() {
			return &Rows{v.state, v.state.DB.Snapshot()}, nil
		}
		timeout := time.NewTimer(time.Until(oldest.Add(Timeout)))
		select {
		case <-applied:
			timeout.Stop()
		case <-timeout.C:
			return v.stored(ctx, kinds)
		case <-ctx.Done():
			timeout.Stop()
			return nil, ctx.Err()
		}
	}
}

// oldest is when the oldest write was that the state lacks, of those up to the last that counts; zero: it
// lacks none. The channel is closed when that may have changed.
func (v *View) oldest(kinds []string, last uint64) (at time.Time, applied <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range kinds {
		for _, w := range v.unseen[kind] {
			if w.number <= last && (at.IsZero() || w.at.Before(at)) {
				at = w.at
			}
		}
	}
	return at, v.applied.Next()
}

// stored reads the store itself, into a state of its own.
func (v *View) stored(ctx context.Context, kinds []string) (*Rows, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bounded.Limit, store.ErrNoResponse)
	defer cancel()
	rows, err := v.listed(ctx, kinds)
	if err != nil && errors.Is(context.Cause(ctx), store.ErrNoResponse) {
		return nil, store.ErrNoResponse
	}
	return rows, err
}

func (v *View) listed(ctx context.Context, kinds []string) (*Rows, error) {
	state := graph.NewState(v.state.Zone)
	state.DefaultMesh, state.LocalNetworks, state.Alone = v.state.DefaultMesh, v.state.LocalNetworks, v.state.Alone
	var objects []resource.Any
	for _, kind := range kinds {
		v.mu.Lock()
		last := v.writes
		v.mu.Unlock()
		rows, _, err := v.rows.List(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			o, err := admit.Decode(row)
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
		v.correct(kind, rows, last)
	}
	state.DB.Commit(func(tx *table.Tx) {
		for _, o := range objects {
			state.Put(tx, o)
		}
	})
	return &Rows{state, state.DB.Snapshot()}, nil
}

// correct has the view wait for what the store holds now: somebody else may have written over a row before
// the mirror brought what this instance had written.
func (v *View) correct(kind string, rows []store.Row, last uint64) {
	versions := make(map[resource.Key]string, len(rows))
	for _, row := range rows {
		versions[row.Key] = row.Version
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, w := range v.unseen[kind] {
		if w.number > last {
			continue
		}
		if w.version = versions[key]; v.shown(key) == w.version {
			delete(v.unseen[kind], key)
		} else {
			v.unseen[kind][key] = w
		}
	}
}

// Rows are all resources of one moment.
type Rows struct {
	State    *graph.State
	Snapshot *table.Snapshot
}
