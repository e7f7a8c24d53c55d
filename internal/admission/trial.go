package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Trial is a Writer whose writes go into memory. They are admitted as by the writer that it is of, each over the
// earlier ones, and nothing is stored. It is for one goroutine.
type Trial struct {
	*Writer
	rows *trialRows
}

// Trial returns a trial of writes.
func (w *Writer) Trial() *Trial {
	rows := &trialRows{Store: w.rows, written: map[resource.Key]*store.Row{}, meshes: map[resource.Key]store.Row{}}
	tried := *w
	tried.rows = rows
	return &Trial{&tried, rows}
}

// Changes returns what the writes of the trial would store and delete, with the resources that are deleted with their
// owner, sorted by key.
func (t *Trial) Changes() (put []resource.Any, removed []resource.Key, err error) {
	keys := slices.SortedFunc(maps.Keys(t.rows.written), func(a, b resource.Key) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, key := range keys {
		row := t.rows.written[key]
		if row == nil {
			removed = append(removed, key)
			continue
		}
		o, err := Decode(*row)
		if err != nil {
			return nil, nil, err
		}
		put = append(put, o)
	}
	return put, removed, nil
}

// trialRows is a store with the rows of another one and changes of its own.
type trialRows struct {
	store.Store
	written map[resource.Key]*store.Row // nil: deleted
	meshes  map[resource.Key]store.Row  // that have been read, since each write in a mesh reads it
	writes  int
}

// Get implements [store.Store].
func (o *trialRows) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	row, ok := o.written[key]
	switch {
	case !ok && key.Kind == kind.Meshes.Name:
		return o.mesh(ctx, key)
	case !ok:
		return o.Store.Get(ctx, key)
	case row == nil:
		return store.Row{}, store.ErrNotFound
	}
	return *row, nil
}

// mesh returns the stored row of a Mesh, which is read once for all writes of the trial.
func (o *trialRows) mesh(ctx context.Context, key resource.Key) (store.Row, error) {
	if row, ok := o.meshes[key]; ok {
		return row, nil
	}
	row, err := o.Store.Get(ctx, key)
	if err == nil {
		o.meshes[key] = row
	}
	return row, err
}

// List implements [store.Store].
func (o *trialRows) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	rows, cursor, err := o.Store.List(ctx, kinds...)
	if err != nil {
		return nil, "", err
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row store.Row) bool {
		_, ok := o.written[row.Key]
		return ok
	})
	for key, row := range o.written {
		if row != nil && slices.Contains(kinds, key.Kind) {
			rows = append(rows, *row)
		}
	}
	slices.SortFunc(rows, func(a, b store.Row) int {
		return a.Key.Compare(b.Key)
	})
	return rows, cursor, nil
}

// Create implements [store.Store].
func (o *trialRows) Create(ctx context.Context, row store.Row) (store.Row, error) {
	if _, err := o.Get(ctx, row.Key); err == nil {
		return store.Row{}, store.ErrExists
	}
	if row.Owner != nil {
		if _, err := o.Get(ctx, *row.Owner); err != nil {
			return store.Row{}, store.ErrNoOwner
		}
	}
	return o.put(row), nil
}

// Update implements [store.Store].
func (o *trialRows) Update(ctx context.Context, row store.Row) (store.Row, error) {
	stored, err := o.Get(ctx, row.Key)
	if err != nil {
		return store.Row{}, err
	}
	if stored.Version != row.Version {
		return store.Row{}, store.ErrStale
	}
	row.Created, row.Modified, row.Owner = stored.Created, stored.Modified, stored.Owner
	return o.put(row), nil
}

func (o *trialRows) put(row store.Row) store.Row {
	o.writes++
	row.Version = fmt.Sprintf("trial-%d", o.writes)
	o.written[row.Key] = &row
	return row
}

// Delete implements [store.Store]. What the row owns goes at once.
func (o *trialRows) Delete(ctx context.Context, key resource.Key, version string) error {
	row, err := o.Get(ctx, key)
	if err != nil {
		return err
	}
	if version != "" && version != row.Version {
		return store.ErrStale
	}
	o.written[key] = nil
	for _, d := range kind.All() {
		if err := o.deleteOwned(ctx, d.Describe().Name, key); err != nil {
			return err
		}
	}
	return nil
}

// deleteOwned deletes the rows of a kind that a row owns.
func (o *trialRows) deleteOwned(ctx context.Context, of string, owner resource.Key) error {
	switch usual := ownerOf(resource.Key{Kind: of, Mesh: owner.Mesh, Name: owner.Name}); {
	case usual == nil, usual.Kind != owner.Kind:
		return nil
	case owner.Kind != kind.Meshes.Name: // a companion has the name of its owner
		key := resource.Key{Kind: of, Mesh: owner.Mesh, Name: owner.Name}
		if _, err := o.Get(ctx, key); err != nil {
			return nil
		}
		return o.Delete(ctx, key, "")
	}
	rows, _, err := o.List(ctx, of)
	for _, row := range rows {
		if row.Key.Mesh == owner.Name && err == nil {
			err = o.Delete(ctx, row.Key, "")
		}
	}
	return err
}
