// Package admission processes every write, of users and of the control plane: defaults, validation, computed fields, owners
// and versions.
//
// Readers of the store need not validate again, since every stored resource was admitted. Errors that a user can
// correct are a [resource.Error]; other errors must not be shown.
package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Options describe the control plane.
type Options struct {
	// Zone is the name of its zone; empty: it is the global control plane.
	Zone string
	// SNIs are the server names that services have; nil where there is no service yet.
	SNIs SNIs
	// Joined says that the zone has joined others: what only the global control plane owns is made there.
	Joined bool
	// LocalNetworks are those of which external services may name addresses, though no external server has
	// them.
	LocalNetworks []netip.Prefix
}

// Writer writes resources. Its methods may be called at the same time.
type Writer struct {
	rows   store.Store
	zone   string
	joined bool
	snis   SNIs
	local  []netip.Prefix
}

// New returns a writer to a store.
func New(rows store.Store, o Options) *Writer {
	return &Writer{rows: rows, zone: o.Zone, joined: o.Joined, snis: o.SNIs, local: o.LocalNetworks}
}

// Change is what a write rests on.
type Change struct {
	// IfMatch is the version that must be the current one; empty where any is fine.
	IfMatch string
	// ControlPlane says that the control plane itself writes. It may write what users only read.
	ControlPlane bool
	// DryRun checks everything that the write would check, answers what it would answer, and writes nothing.
	DryRun bool
	// Token is set where an agent writes its Dataplane: what its token vouches for, and whether it may replace what
	// is stored, nil where nothing is. The write of anybody else is vouched for by an operator.
	Token *Token
	// Sender is what the program that sends a user's write cannot express.
	Sender Sender
	// Told is called with what stood before and after, nil where there was or is nothing, once a write has
	// changed something. Optional.
	Told func(before, after resource.Any)
}

// Token is what the token of an agent allows.
type Token struct {
	// Claimed returns the facts of a Dataplane (see [kind.Facts]) that the token vouches for, sorted.
	Claimed func(*resource.Object[kind.Dataplane]) []string
	// Allows returns an error for a Dataplane that the agent may not write over what is stored, nil where nothing is.
	Allows func(stored, next *resource.Object[kind.Dataplane]) error
}

// Result is what a write came to.
type Result struct {
	Object   resource.Any // as it is stored; of a dry run as it would be, without a version where that would be new
	Created  bool
	Changed  bool // false: the same was stored before, and nothing was written
	Warnings []string
}

// Put stores a resource whether it was there or not, unless Change.IfMatch says otherwise. The object
// is not changed.
//
// A mesh must exist before what is in it. Errors are Invalid with every problem, NotFound for the mesh
// or owner that is missing, Forbidden for what only the control plane writes and for what belongs to another
// one, Stale, Unavailable.
func (w *Writer) Put(ctx context.Context, o resource.Any, change Change) (Result, error) {
	if err := w.allowed(o.Key(), change); err != nil {
		return Result{}, err
	}
	for {
		result, err := w.putOnce(ctx, o, change)
		if raced(err) {
			continue // somebody was faster: look again
		}
		if err != nil {
			return Result{}, shown(o.Key(), err)
		}
		return result, nil
	}
}

// putOnce completes a copy of what was written over what is stored now.
func (w *Writer) putOnce(ctx context.Context, written resource.Any, change Change) (Result, error) {
	stored, err := w.stored(ctx, written.Key())
	if err != nil {
		return Result{}, err
	}
	if err := matches(written.Key(), stored, change.IfMatch); err != nil {
		return Result{}, err
	}
	o := copied(written, store.Row{})
	var ignored []string
	if !change.ControlPlane {
		if ignored = w.ignoreComputed(o, stored); stored != nil && change.Token == nil {
			kept, same, err := w.compare(written, o, stored, change.Sender)
			ignored = append(ignored, kept...)
			if err != nil || same {
				return Result{Object: stored.before(), Warnings: ignored}, err
			}
		}
	}
	before := stored.before()
	if err := vouch(before, o, change.Token); err != nil {
		return Result{}, err
	}
	result, err := w.write(ctx, o, stored, change, nil)
	if err == nil {
		result.Warnings = append(ignored, w.warnings(ctx, before, result.Object)...)
	}
	return result, err
}

// vouch records who vouches for what of a Dataplane that is written over what was stored.
func vouch(before, o resource.Any, token *Token) error {
	after, ok := o.(*resource.Object[kind.Dataplane])
	if !ok {
		o.Envelope().Vouched = resource.Vouched{}
		return nil
	}
	stored, _ := before.(*resource.Object[kind.Dataplane])
	if token == nil {
		kind.VouchOperator(stored, after)
		return nil
	}
	kind.VouchToken(stored, after, token.Claimed(after))
	return token.Allows(stored, after)
}

// Create stores a resource of the control plane's own unless there is one already, and answers what is
// stored. It is owned by owner, or as usual where that is nil: by its mesh.
func (w *Writer) Create(ctx context.Context, o resource.Any, owner *resource.Key) (Result, error) {
	for {
		stored, err := w.stored(ctx, o.Key())
		if err != nil {
			return Result{}, shown(o.Key(), err)
		}
		if stored != nil {
			return Result{Object: stored.object}, nil
		}
		result, err := w.write(ctx, o, nil, Change{ControlPlane: true}, owner)
		if raced(err) {
			continue
		}
		return result, shown(o.Key(), err)
	}
}

// Modify reads a resource, changes it and writes it on behalf of the control plane, and retries while other writes
// conflict. A missing resource is passed to change as an empty one, which is then created. Nothing is written when
// change returns false.
func Modify[S any](ctx context.Context, w *Writer, k *resource.Kind[S], mesh, name string,
	change func(*resource.Object[S]) bool) error {
	for {
		stored, err := w.stored(ctx, k.Key(mesh, name))
		if err != nil {
			return shown(k.Key(mesh, name), err)
		}
		var empty S
		o := k.Make(mesh, name, empty)
		if stored != nil {
			o = stored.object.(*resource.Object[S])
		}
		if !change(o) {
			return nil
		}
		if _, err := w.write(ctx, o, stored, Change{ControlPlane: true}, nil); !raced(err) {
			return shown(o.Key(), err)
		}
	}
}

// ModifyKnown is [Modify] of a resource that the caller has in memory; nil: it has none. The first attempt reads
// nothing and writes over the known version only, so a memory that lags costs one attempt. A change that returns false
// for the known resource is called again with the stored one. It must not alter what the resource refers to in place.
func ModifyKnown[S any](
	ctx context.Context, w *Writer, known *resource.Object[S], k *resource.Kind[S], mesh, name string,
	change func(*resource.Object[S]) bool,
) error {
	var empty S
	o, stored := k.Make(mesh, name, empty), (*current)(nil)
	if known != nil {
		copied := *known
		o = &copied
		stored = &current{store.Row{Key: known.Key(), Version: known.Version, Created: known.Created,
			Modified: known.Modified}, known}
	}
	if change(o) {
		if _, err := w.write(ctx, o, stored, Change{ControlPlane: true}, nil); !raced(err) {
			return shown(o.Key(), err)
		}
	}
	return Modify(ctx, w, k, mesh, name, change)
}

// Delete removes a resource and what it owns. A mesh that still has Dataplanes stays: Conflict. A dry run
// looks at the same, and removes nothing.
func (w *Writer) Delete(ctx context.Context, key resource.Key, change Change) error {
	if err := w.allowed(key, change); err != nil {
		return err
	}
	if key.Kind == kind.Meshes.Name {
		if err := w.unused(ctx, key); err != nil {
			return err
		}
	}
	err := w.deletable(ctx, key)
	if err == nil {
		err = w.remove(ctx, key, change)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return resource.Errorf(resource.NotFound, "%s does not exist", key)
	case errors.Is(err, store.ErrStale):
		return stale(key)
	}
	return shown(key, err)
}

// remove deletes a row, or says of a dry run what would stand against that. Who is to be told of it is told
// of the very row that went.
func (w *Writer) remove(ctx context.Context, key resource.Key, change Change) error {
	if !change.DryRun && change.Told == nil {
		return w.rows.Delete(ctx, key, change.IfMatch)
	}
	row, err := w.rows.Get(ctx, key)
	if err == nil && change.IfMatch != "" && change.IfMatch != row.Version {
		err = store.ErrStale
	}
	if err != nil || change.DryRun {
		return err
	}
	err = w.rows.Delete(ctx, key, row.Version)
	if errors.Is(err, store.ErrStale) && change.IfMatch == "" {
		return w.remove(ctx, key, change) // somebody was faster: look again
	}
	if err == nil {
		before, _ := Decode(row) // what can't be read any more can be deleted
		change.Told(before, nil)
	}
	return err
}

// Decode makes an object of a stored row.
func Decode(row store.Row) (resource.Any, error) {
	d := kind.ByName(row.Key.Kind)
	if d == nil {
		return nil, fmt.Errorf("%s: the store has a kind that this release does not know", row.Key)
	}
	return resource.FromBody(d, resource.Meta{
		Mesh: row.Key.Mesh, Name: row.Key.Name,
		Version: row.Version, Created: row.Created, Modified: row.Modified,
	}, row.Body)
}

// allowed says whether such a resource may be written at all.
func (w *Writer) allowed(key resource.Key, change Change) error {
	d := kind.ByName(key.Kind)
	if d == nil {
		return resource.Errorf(resource.Invalid, "%q is not a type of this control plane", key.Kind)
	}
	if info := d.Describe(); !change.ControlPlane && (info.ReadOnly || info.Hidden) {
		return resource.Errorf(resource.Forbidden, "a %s is written by the control plane only", key.Kind)
	}
	return nil
}

// current is what is stored. The object was decoded for its one user, who may change it.
type current struct {
	row    store.Row
	object resource.Any
}

// before answers what stood there, as those see it who are told of a change.
func (c *current) before() resource.Any {
	if c == nil {
		return nil
	}
	return c.object
}

// stored answers what is stored, or nil.
func (w *Writer) stored(ctx context.Context, key resource.Key) (*current, error) {
	row, err := w.rows.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	object, err := Decode(row)
	if err != nil {
		return nil, err
	}
	return &current{row, object}, nil
}

// matches says whether a write that is based on a version may go on.
func matches(key resource.Key, stored *current, ifMatch string) error {
	switch {
	case ifMatch == "", stored != nil && stored.row.Version == ifMatch:
		return nil
	case stored == nil:
		return resource.Errorf(resource.Stale, "%s does not exist any more; leave out the version to create it", key)
	}
	return stale(key)
}

func stale(key resource.Key) error {
	return resource.Errorf(resource.Stale, "%s was changed since; read it again and repeat the change", key)
}

// write completes, checks and stores one object over what was stored, nil where there was nothing. The
// store's errors are passed on.
func (w *Writer) write(ctx context.Context, o resource.Any, stored *current, change Change,
	owner *resource.Key) (Result, error) {
	if err := w.ownable(o.Key(), stored); err != nil {
		return Result{}, err
	}
	if err := w.complete(o, stored, change.ControlPlane); err != nil {
		return Result{}, err
	}
	if err := w.joins(ctx, o); err != nil {
		return Result{}, err
	}
	if err := w.external(o); err != nil {
		return Result{}, err
	}
	if err := w.backends(ctx, o, stored); err != nil {
		return Result{}, err
	}
	if err := w.checkTrust(ctx, o, w.owner(o.Envelope()), stored, false, change.ControlPlane); err != nil {
		return Result{}, err
	}
	body, err := resource.Body(o)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", o.Key(), err)
	}
	if stored != nil && bytes.Equal(body, stored.row.Body) {
		return Result{Object: stored.object}, nil
	}
	row := store.Row{Key: o.Key(), Body: body}
	if stored == nil {
		if row.Owner = owner; owner == nil {
			row.Owner = ownerOf(row.Key)
		}
	}
	if row, err = w.store(ctx, row, stored, change.DryRun); err != nil {
		return Result{}, err
	}
	object := copied(o, row)
	if !change.DryRun && change.Told != nil {
		change.Told(stored.before(), object)
	}
	return Result{Object: object, Created: stored == nil, Changed: true}, nil
}

// copied returns what [Decode] returns for a row with the object's body.
func copied(o resource.Any, row store.Row) resource.Any {
	c := resource.Clone(o)
	meta := c.Envelope()
	meta.Version, meta.Created, meta.Modified = row.Version, row.Created, row.Modified
	return c
}

// store writes a row over what was stored; a dry run answers the row as it would be.
func (w *Writer) store(ctx context.Context, row store.Row, stored *current, dryRun bool) (store.Row, error) {
	switch {
	case dryRun && stored != nil:
		row.Created, row.Modified = stored.row.Created, stored.row.Modified
		return row, nil
	case dryRun:
		return row, w.owned(ctx, row)
	case stored != nil:
		row.Version = stored.row.Version
		return w.rows.Update(ctx, row)
	}
	created, err := w.rows.Create(ctx, row)
	if errors.Is(err, store.ErrNoOwner) {
		err = ownerless(row)
	}
	return created, err
}

// owned rejects a new row whose owner does not exist, as a store does.
func (w *Writer) owned(ctx context.Context, row store.Row) error {
	if row.Owner == nil {
		return nil
	}
	_, err := w.rows.Get(ctx, *row.Owner)
	if errors.Is(err, store.ErrNotFound) {
		return ownerless(row)
	}
	return err
}

func ownerless(row store.Row) error {
	missing := &resource.Error{Code: resource.NotFound, Detail: fmt.Sprintf("%s was not written: %s does not exist",
		row.Key, row.Owner)}
	if row.Owner.Kind == kind.Meshes.Name {
		missing.Problems.Add("mesh", "%q does not exist; create the Mesh first", row.Owner.Name)
	}
	return missing
}

// raced says whether a write failed because another one came first.
func raced(err error) bool {
	return errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound)
}

// shown makes a store that is not available an error that a user may see.
func shown(key resource.Key, err error) error {
	if !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return &resource.Error{Code: resource.Unavailable, Detail: fmt.Sprintf("%s: %s; try again", key, store.Why(err)),
		Cause: err}
}

// unused rejects the deletion of a mesh that has Dataplanes. A Dataplane that joins at the same moment is deleted with
// the mesh.
func (w *Writer) unused(ctx context.Context, mesh resource.Key) error {
	rows, _, err := w.rows.List(ctx, kind.Dataplanes.Name)
	if err != nil {
		return shown(mesh, err)
	}
	count := 0
	for _, row := range rows {
		if row.Key.Mesh == mesh.Name {
			count++
		}
	}
	if count > 0 {
		return resource.Errorf(resource.Conflict, "%s still has Dataplanes (%d); delete them first", mesh, count)
	}
	return nil
}
