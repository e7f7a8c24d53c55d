// Package view reads resources from the table's state instead of the store.
//
// A read returns all earlier writes of this replica: it waits until the mirror has brought them, a few milliseconds,
// and for no write of another replica. Where the mirror brings nothing for longer than [Timeout], it reads the store
// itself, at the cost of a list. A mirror that lags, as while many zones join at once, is waited for: lists would take
// from it the time that it needs. Writes of other replicas appear a few milliseconds later.
package view

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/resource"
)

// Timeout is the time for which a reader waits for the next batch of the mirror before it reads the store.
const Timeout = bounded.Limit

// View reads resources. It is safe for concurrent use.
type View struct {
	state *graph.State
	rows  store.Store

	mu sync.Mutex
	// unseen has the writes of this replica that the state does not contain yet, by kind.
	unseen  map[string]map[resource.Key]write
	writes  uint64         // number of writes
	applied wait.Broadcast // of each batch
	last    time.Time      // of the last batch
	// position is that of the newest batch in the store.
	position int64
	lag      Lag
}

// write is a write that the state does not contain yet.
type write struct {
	version string   // of the row; empty after a deletion
	former  []string // versions of earlier writes of this replica that the state does not contain yet
	number  uint64
	at      time.Time
	// doubted is true where the mirror has brought a version of another replica: the later one of the two stays.
	doubted bool
}

// New returns a view of a state that mirrors a store.
func New(state *graph.State, rows store.Store) *View {
	return &View{state: state, rows: rows, unseen: map[string]map[resource.Key]write{}}
}

// HasRows reports whether the state has the resources of a kind.
func (v *View) HasRows(kind string) bool { return v.state.Tables.HasRows(kind) }

// Store returns the store through which this replica must write, so that the view knows its writes.
func (v *View) Store() store.Store { return noting{v.rows, v} }

// noting is a store that reports its writes to the view.
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
	if err == nil && n.view.state.Tables.HasRows(key.Kind) {
		n.view.note(key, version)
	}
	return err
}

// note records a write, unless the state already contains it. While an earlier write to the row is unseen, a row that
// looks right may still change before this write arrives.
func (v *View) note(key resource.Key, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	earlier, onItsWay := v.unseen[key.Kind][key]
	if !onItsWay && v.shown(key) == version {
		return
	}
	if v.unseen[key.Kind] == nil {
		v.unseen[key.Kind] = map[resource.Key]write{}
	}
	v.writes++
	is := write{version: version, number: v.writes, at: time.Now()}
	if onItsWay {
		is.former = append(earlier.former, earlier.version)
	}
	v.unseen[key.Kind][key] = is
}

// shown returns the version of a row in the state, or an empty string.
func (v *View) shown(key resource.Key) string {
	o, ok := v.state.Tables.Find(table.Eval(v.state.Tables.DB.ComputedSnapshot()), key)
	if !ok {
		return ""
	}
	return o.Envelope().Version
}

// NoteBatch reports a batch that the state now contains.
func (v *View) NoteBatch(b mirror.Batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range b.Put {
		v.seen(o.Key(), o.Envelope().Version)
	}
	for _, key := range b.Removed {
		v.seen(key, "")
	}
	v.last, v.position = time.Now(), b.Position
	v.applied.Send()
}

func (v *View) seen(key resource.Key, version string) {
	w, ok := v.unseen[key.Kind][key]
	if !ok {
		return
	}
	if w.version == version {
		delete(v.unseen[key.Kind], key)
		return
	}
	if i := slices.Index(w.former, version); i >= 0 {
		w.former = w.former[i+1:]
	} else {
		w.doubted = true
	}
	v.unseen[key.Kind][key] = w
}

// AwaitStored waits until the state has what every replica had stored when it was called, and not longer than most. It
// returns false where something may be missing: after that time, and for a store that does not respond. A store without
// an order of all writes is not waited for.
func (v *View) AwaitStored(ctx context.Context, most time.Duration) bool {
	return v.awaitStored(ctx, most) == nil
}

// errLagging is the error of a state that lacks changes which are stored.
var errLagging = errors.New("the store has changes that have not arrived")

func (v *View) awaitStored(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	until, err := v.rows.Newest(ctx, v.state.Tables.Kinds(), v.reached())
	if err != nil {
		return err
	}
	for {
		applied := v.applied.Next() // before the position is read, so that no batch is missed
		if v.reached() >= until {
			return nil
		}
		select {
		case <-applied:
		case <-ctx.Done():
			return errLagging
		}
	}
}

func (v *View) reached() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.position
}

// Read returns the resources of the given kinds, with all earlier writes of this replica; other kinds may be missing.
// Without kinds, it returns all. It returns an error where ctx ends, or where the mirror lags and the store fails.
func (v *View) Read(ctx context.Context, kinds ...string) (*Rows, error) {
	if len(kinds) == 0 {
		kinds = v.state.Tables.Kinds()
	}
	switch brought, err := v.await(ctx, kinds, true); {
	case err != nil:
		return nil, err
	case !brought:
		return v.stored(ctx, kinds)
	}
	return &Rows{v.state, v.state.Tables.DB.ComputedSnapshot()}, nil
}

// AwaitWrites waits until the mirror has brought all earlier writes of this replica.
func (v *View) AwaitWrites(ctx context.Context) error {
	_, err := v.await(ctx, v.state.Tables.Kinds(), false)
	return err
}

// await waits until the mirror has brought the earlier writes of this replica to some kinds. It returns false where the
// wait is bounded and the mirror is stuck.
func (v *View) await(ctx context.Context, kinds []string, bounded bool) (brought bool, err error) {
	v.mu.Lock()
	last := v.writes
	v.mu.Unlock()
	lost := time.NewTicker(Timeout)
	defer lost.Stop()
	for {
		if err := v.clearDoubts(ctx, kinds, last); err != nil {
			return false, err
		}
		stuck, applied := v.stuckAt(kinds, last)
		if stuck.IsZero() {
			return true, nil
		}
		var timeout <-chan time.Time
		if bounded {
			timeout = time.After(time.Until(stuck))
		}
		select {
		case <-applied:
		case <-timeout:
			return false, nil
		case <-lost.C:
			if !bounded {
				v.doubtAll(kinds, last)
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// stuckAt returns the time at which the mirror is stuck, unless it brings a batch before; zero: the state has all
// writes up to number last. The channel closes when that may have changed.
func (v *View) stuckAt(kinds []string, last uint64) (at time.Time, applied <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var oldest time.Time // of the writes that the state lacks
	for _, kind := range kinds {
		for _, w := range v.unseen[kind] {
			if w.number <= last && (oldest.IsZero() || w.at.Before(oldest)) {
				oldest = w.at
			}
		}
	}
	if oldest.IsZero() {
		return oldest, nil
	}
	if v.last.After(oldest) {
		oldest = v.last
	}
	return oldest.Add(Timeout), v.applied.Next()
}

// clearDoubts reads the rows of doubted writes up to number last.
func (v *View) clearDoubts(ctx context.Context, kinds []string, last uint64) error {
	for _, key := range v.doubted(kinds, last) {
		row, err := v.rows.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		v.mu.Lock()
		v.expect(key, row.Version, last)
		v.mu.Unlock()
	}
	return nil
}

// doubtAll has the rows of writes up to number last read: no batch has a row that was deleted again before a list.
func (v *View) doubtAll(kinds []string, last uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range kinds {
		for key, w := range v.unseen[kind] {
			w.doubted = w.doubted || w.number <= last
			v.unseen[kind][key] = w
		}
	}
}

func (v *View) doubted(kinds []string, last uint64) (keys []resource.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range kinds {
		for key, w := range v.unseen[kind] {
			if w.doubted && w.number <= last {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// expect sets the version that the state must have in place of that of a write up to number last.
func (v *View) expect(key resource.Key, version string, last uint64) {
	w, ok := v.unseen[key.Kind][key]
	if !ok || w.number > last {
		return
	}
	if v.shown(key) == version {
		delete(v.unseen[key.Kind], key)
		return
	}
	w.version, w.former, w.doubted = version, nil, false
	v.unseen[key.Kind][key] = w
}

// stored reads the store into a new state.
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
	state := graph.NewState(v.state.Tables.Zone)
	to, from := state.Tables, v.state.Tables
	to.DefaultMesh, to.LocalNetworks, to.Standalone = from.DefaultMesh, from.LocalNetworks, from.Standalone
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
			o, err := admission.Decode(row)
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
		v.correct(kind, rows, last)
	}
	state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range objects {
			state.Tables.Put(tx, o)
		}
	})
	return &Rows{state, state.Tables.DB.Snapshot()}, nil
}

// correct updates the expected versions to those in the store: another replica may have overwritten a row before the
// mirror brought this replica's write.
func (v *View) correct(kind string, rows []store.Row, last uint64) {
	versions := make(map[resource.Key]string, len(rows))
	for _, row := range rows {
		versions[row.Key] = row.Version
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for key := range v.unseen[kind] {
		v.expect(key, versions[key], last)
	}
}

// Rows is a consistent snapshot of all resources.
type Rows struct {
	State    *graph.State
	Snapshot *table.Snapshot
}
