// Package admission processes every write, of users and of the control plane: defaults, validation, computed fields,
// owners and versions.
//
// Readers of the store need not validate again, since every stored resource was admitted. Errors that a user can
// correct are a [resource.Error]; other errors must not be shown.
package admission

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Options describe the control plane that writes.
type Options struct {
	// Zone is the name of the control plane's zone; empty on the global control plane.
	Zone string
	// SNIs looks up the SNIs of services; nil while there is no service.
	SNIs SNIs
	// Environment is where the proxies of the zone run: [kind.Universal], the default, or [kind.Kubernetes].
	Environment string
	// SystemNamespace has the resources of the mesh's operators on Kubernetes.
	SystemNamespace string
	// Joined is true for a zone with a global control plane, which alone writes the kinds of global.
	Joined bool
	// Findings returns the problems that `weft check` would find of a resource that a user writes, as texts; nil: none.
	// It does not write.
	Findings func(resource.Any) []string
	// LocalNetworks are local networks whose addresses external services may have nevertheless.
	LocalNetworks []netip.Prefix
	// Patches checks MeshProxyPatches; nil: none is accepted from a user.
	Patches PatchChecker
	// Namespaces looks up what namespaces of Kubernetes may have; nil outside a zone on Kubernetes.
	Namespaces Namespaces
}

// Writer writes resources. Its methods may be called concurrently.
type Writer struct {
	rows    store.Store
	zone    string
	env     string
	system  string // namespace
	joined  bool
	snis    SNIs
	local   []netip.Prefix
	patches PatchChecker
	// findings is [Options.Findings], never nil.
	findings func(resource.Any) []string
	// namespaces is [Options.Namespaces].
	namespaces Namespaces
}

// New returns a writer to rows.
func New(rows store.Store, o Options) *Writer {
	if o.Findings == nil {
		o.Findings = func(resource.Any) []string { return nil }
	}
	if o.Patches == nil {
		o.Patches = noPatches{}
	}
	return &Writer{rows: rows, zone: o.Zone, env: cmp.Or(o.Environment, kind.Universal), system: o.SystemNamespace,
		joined: o.Joined, snis: o.SNIs, local: o.LocalNetworks, patches: o.Patches, findings: o.Findings,
		namespaces: o.Namespaces}
}

// Change holds the conditions and the origin of a write.
type Change struct {
	// IfMatch is the version that must be the current one; empty: any version is accepted.
	IfMatch string
	// ControlPlane is true for writes of the control plane itself, which may write kinds that users only read.
	ControlPlane bool
	// DryRun runs every check of the write and returns its result, without writing.
	DryRun bool
	// Token is set where an agent writes its Dataplane.
	Token *Token
	// Vouches returns an error with the reason where the writer is no operator. The facts that such a writer adds to a
	// Dataplane have no voucher, and it changes no fact that has one. It is called for the write of a Dataplane; nil:
	// the writer is an operator.
	Vouches func(context.Context) error
	// Administers returns an error with the reason where the writer may not read Secrets. Such a writer adds and
	// changes no reference to one, and its patches of proxies have harmless types alone. It is called for a write that
	// needs the permission; nil: the writer has it.
	Administers func(context.Context) error
	// Sender lists the fields that the program of the user cannot express.
	Sender Sender
	// OnChange is called after a write that changed something, with the object before and after it: nil where it did
	// not exist or does not exist any more. Optional.
	OnChange func(before, after resource.Any)
}

// mayAdminister calls Administers.
func (c *Change) mayAdminister(ctx context.Context) error {
	if c.Administers == nil {
		return nil
	}
	return c.Administers(ctx)
}

// mayVouch calls Vouches.
func (c *Change) mayVouch(ctx context.Context) error {
	if c.Vouches == nil {
		return nil
	}
	return c.Vouches(ctx)
}

// Token has the permissions of an agent's token.
type Token struct {
	// Claimed returns the facts of a Dataplane (see [kind.Facts]) that the token vouches for, sorted.
	Claimed func(*resource.Object[kind.Dataplane]) []string
	// Allows returns an error for a Dataplane that the agent may not write over what is stored, nil where nothing is.
	Allows func(stored, next *resource.Object[kind.Dataplane]) error
}

// Result is the outcome of a write.
type Result struct {
	Object   resource.Any // as stored; for a dry run as it would be stored, and without a version if that would be new
	Created  bool
	Changed  bool // false: the same object was stored before, and nothing was written
	Warnings []string
}

// Put creates or updates a resource, subject to Change.IfMatch. It does not change o.
//
// The mesh of a resource must exist. Errors are Invalid with every problem, NotFound for a missing mesh or owner,
// Forbidden for a kind that only the control plane writes and for a resource of another control plane, Stale and
// Unavailable.
func (w *Writer) Put(ctx context.Context, o resource.Any, change Change) (Result, error) {
	if err := w.checkWritable(o.Key(), change); err != nil {
		return Result{}, err
	}
	for {
		result, err := w.putOnce(ctx, o, change)
		if isConflict(err) {
			continue // another write came first: read again
		}
		if err != nil {
			return Result{}, userError(o.Key(), err)
		}
		return result, nil
	}
}

// putOnce is one attempt of [Writer.Put]: it completes a copy of written over the stored object.
func (w *Writer) putOnce(ctx context.Context, written resource.Any, change Change) (Result, error) {
	stored, err := w.stored(ctx, written.Key())
	if err != nil {
		return Result{}, err
	}
	if err := checkIfMatch(written.Key(), stored, change.IfMatch); err != nil {
		return Result{}, err
	}
	o := copied(written, store.Row{})
	var ignored []string
	if !change.ControlPlane {
		kind.KeepPrivateKeys(stored.objectOrNil(), o)
		ignored = append(w.ignoreComputed(o, stored), deprecations(written)...)
		if stored != nil && change.Token == nil {
			kept, same, err := w.compare(written, o, stored, change.Sender)
			ignored = append(ignored, kept...)
			if err != nil || same {
				_, costs := kind.CheckCost(stored.object, stored.object)
				ignored = append(ignored, costs...)
				return Result{Object: stored.objectOrNil(), Warnings: ignored}, err
			}
		}
	}
	before := stored.objectOrNil()
	ignored = append(ignored, keepExemption(before, o)...)
	keepNamespaces(before, o)
	if err := w.recordVouched(ctx, before, o, change); err != nil {
		return Result{}, err
	}
	if !change.ControlPlane {
		ignored = append(ignored, kind.RecordPrefixes(before, o)...)
		problems, kept := kind.CheckRegexes(before, o)
		if len(problems) > 0 {
			return Result{}, &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid",
				Problems: problems}
		}
		ignored = append(ignored, kept...)
	}
	result, err := w.write(ctx, o, stored, change, nil)
	if err == nil {
		_, costs := kind.CheckCost(before, result.Object)
		result.Warnings = slices.Concat(ignored, costs, w.warnings(ctx, before, result.Object),
			w.impossibleSelectors(result.Object))
	}
	if err == nil && result.Changed && !change.ControlPlane && change.Token == nil {
		result.Warnings = slices.Concat(result.Warnings, replacedWarnings(before, result.Object),
			w.findings(result.Object))
	}
	return result, err
}

// keepExemption keeps the field unvouchedMembers of a Mesh that a write leaves out, and says so: the control plane has
// written it for members that would be lost, and the user's document may be older. One that exempts nothing removes it.
func keepExemption(before, o resource.Any) (warnings []string) {
	mesh, ok := o.(*resource.Object[kind.Mesh])
	if !ok {
		return nil
	}
	stored, _ := before.(*resource.Object[kind.Mesh])
	switch now := mesh.Spec.UnvouchedMembers; {
	case now != nil && !now.Tags && !now.Addresses:
		mesh.Spec.UnvouchedMembers = nil
	case now == nil && stored != nil && stored.Spec.UnvouchedMembers != nil:
		mesh.Spec.UnvouchedMembers = stored.Spec.UnvouchedMembers
		warnings = []string{"unvouchedMembers: is kept, since members of services may need it (`weft check`); to " +
			"remove it, write `unvouchedMembers: {tags: false, addresses: false}`"}
	}
	return warnings
}

// recordRelease records in a written Mesh or MeshMultiZoneService that it decides about members without a voucher, or
// about the namespaces of members. One of an earlier release does not, until the control plane has written it.
func recordRelease(before, o resource.Any) {
	switch o.(type) {
	case *resource.Object[kind.Mesh], *resource.Object[kind.MeshMultiZoneService]:
		o.Envelope().Vouched.Complete = before == nil || before.Envelope().Vouched.Complete
	}
}

// keepNamespaces keeps the namespaces of a MeshMultiZoneService where a write leaves them out: the control plane has
// written them for the members that it has.
func keepNamespaces(before, o resource.Any) {
	service, ok := o.(*resource.Object[kind.MeshMultiZoneService])
	stored, had := before.(*resource.Object[kind.MeshMultiZoneService])
	if ok && had && len(service.Spec.Selector.Namespaces) == 0 {
		service.Spec.Selector.Namespaces = stored.Spec.Selector.Namespaces
	}
}

// Create stores a resource of the control plane unless it exists, and returns the stored one. Its owner is owner; nil:
// the usual owner, its mesh.
func (w *Writer) Create(ctx context.Context, o resource.Any, owner *resource.Key) (Result, error) {
	for {
		stored, err := w.stored(ctx, o.Key())
		if err != nil {
			return Result{}, userError(o.Key(), err)
		}
		if stored != nil {
			return Result{Object: stored.object}, nil
		}
		result, err := w.write(ctx, o, nil, Change{ControlPlane: true}, owner)
		if isConflict(err) {
			continue
		}
		return result, userError(o.Key(), err)
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
			return userError(k.Key(mesh, name), err)
		}
		var empty S
		o := k.Make(mesh, name, empty)
		if stored != nil {
			o = stored.object.(*resource.Object[S])
		}
		if !change(o) {
			return nil
		}
		if _, err := w.write(ctx, o, stored, Change{ControlPlane: true}, nil); !isConflict(err) {
			return userError(o.Key(), err)
		}
	}
}

// ModifyKnown is [Modify] for a resource that the caller has in memory; a nil known is a missing resource. The first
// attempt reads nothing and writes over the known version only, so an outdated memory costs one attempt. If change
// returns false for the known resource, it is called again with the stored one. It must not alter in place what the
// resource refers to.
func ModifyKnown[S any](
	ctx context.Context, w *Writer, known *resource.Object[S], k *resource.Kind[S], mesh, name string,
	change func(*resource.Object[S]) bool,
) error {
	var empty S
	o, stored := k.Make(mesh, name, empty), (*current)(nil)
	if known != nil {
		copied := *known
		o, stored = &copied, inMemory(known)
	}
	if change(o) {
		if _, err := w.write(ctx, o, stored, Change{ControlPlane: true}, nil); !isConflict(err) {
			return userError(o.Key(), err)
		}
	}
	return Modify(ctx, w, k, mesh, name, change)
}

// Replace writes a resource of the control plane over one that the caller has in memory. It reads nothing. The error is
// Stale where the store has another version.
func (w *Writer) Replace(ctx context.Context, known, o resource.Any) (Result, error) {
	result, err := w.write(ctx, copied(o, store.Row{}), inMemory(known), Change{ControlPlane: true}, nil)
	if isConflict(err) {
		return Result{}, errStale(o.Key())
	}
	return result, userError(o.Key(), err)
}

// inMemory returns the stored object of a resource that was read before. Its row has no body.
func inMemory(known resource.Any) *current {
	meta := known.Envelope()
	return &current{store.Row{Key: known.Key(), Version: meta.Version, Created: meta.Created, Modified: meta.Modified},
		known}
}

// Delete removes a resource and the resources that it owns. A mesh that still has Dataplanes is not deleted: Conflict.
// A dry run makes the same checks and removes nothing.
func (w *Writer) Delete(ctx context.Context, key resource.Key, change Change) error {
	if err := w.checkWritable(key, change); err != nil {
		return err
	}
	if key.Kind == kind.Meshes.Name {
		if err := w.checkMeshUnused(ctx, key); err != nil {
			return err
		}
	}
	err := w.checkDeletable(ctx, key)
	if err == nil {
		err = w.remove(ctx, key, change)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return resource.Errorf(resource.NotFound, "%s does not exist", key)
	case errors.Is(err, store.ErrStale):
		return errStale(key)
	}
	return userError(key, err)
}

// remove deletes a row; for a dry run it returns the error of the deletion. OnChange is called with the deleted row.
func (w *Writer) remove(ctx context.Context, key resource.Key, change Change) error {
	if !change.DryRun && change.OnChange == nil {
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
		return w.remove(ctx, key, change) // another write came first: read again
	}
	if err == nil {
		before, _ := Decode(row) // an unreadable row can be deleted too
		change.OnChange(before, nil)
	}
	return err
}

// Decode returns the object of a stored row.
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

// checkWritable returns an error for a kind that may not be written: unknown, or written by the control plane only.
func (w *Writer) checkWritable(key resource.Key, change Change) error {
	d := kind.ByName(key.Kind)
	if d == nil {
		return resource.Errorf(resource.Invalid, "%q is not a type of this control plane", key.Kind)
	}
	if info := d.Describe(); !change.ControlPlane && (info.ReadOnly || info.Hidden) {
		return resource.Errorf(resource.Forbidden, "a %s is written by the control plane only", key.Kind)
	}
	return nil
}

// current is a stored object. It was decoded for one caller, who may change it.
type current struct {
	row    store.Row
	object resource.Any
}

// objectOrNil returns the object; nil where nothing was stored.
func (c *current) objectOrNil() resource.Any {
	if c == nil {
		return nil
	}
	return c.object
}

// stored returns the stored object; nil where nothing is stored.
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

// checkIfMatch returns an error where ifMatch is not the stored version.
func checkIfMatch(key resource.Key, stored *current, ifMatch string) error {
	switch {
	case ifMatch == "", stored != nil && stored.row.Version == ifMatch:
		return nil
	case stored == nil:
		return resource.Errorf(resource.Stale, "%s does not exist any more; leave out the version to create it", key)
	}
	return errStale(key)
}

func errStale(key resource.Key) error {
	return resource.Errorf(resource.Stale, "%s was changed since; read it again and repeat the change", key)
}

// write completes, checks and stores o over the stored object; stored is nil where it is created. Errors of the store
// are returned unchanged.
func (w *Writer) write(ctx context.Context, o resource.Any, stored *current, change Change,
	owner *resource.Key) (Result, error) {
	if err := w.checkOwnable(o.Key(), stored); err != nil {
		return Result{}, err
	}
	if err := w.complete(o, stored, change.ControlPlane); err != nil {
		return Result{}, err
	}
	// The labels of a Pod that its mesh no longer admits are written: they are what evicts its Dataplane.
	if stored == nil || !change.ControlPlane {
		if err := w.checkMembership(ctx, o); err != nil {
			return Result{}, err
		}
	}
	if err := w.checkNamespace(ctx, o, stored, change.ControlPlane); err != nil {
		return Result{}, err
	}
	if err := w.checkSecretReferences(ctx, o, stored, change); err != nil {
		return Result{}, err
	}
	if err := w.checkPatch(ctx, o, stored, change); err != nil {
		return Result{}, err
	}
	if !change.ControlPlane {
		if problems, _ := kind.CheckCost(stored.objectOrNil(), o); len(problems) > 0 {
			return Result{}, &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid",
				Problems: problems}
		}
	}
	if err := w.checkExternalAddresses(o); err != nil {
		return Result{}, err
	}
	if err := w.checkBackends(ctx, o, stored); err != nil {
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
	if !change.DryRun && change.OnChange != nil {
		change.OnChange(stored.objectOrNil(), object)
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

// store writes a row over the stored one; for a dry run it returns the row as it would be stored.
func (w *Writer) store(ctx context.Context, row store.Row, stored *current, dryRun bool) (store.Row, error) {
	switch {
	case dryRun && stored != nil:
		row.Created, row.Modified = stored.row.Created, stored.row.Modified
		return row, nil
	case dryRun:
		return row, w.checkOwnerExists(ctx, row)
	case stored != nil:
		row.Version = stored.row.Version
		return w.rows.Update(ctx, row)
	}
	created, err := w.rows.Create(ctx, row)
	if errors.Is(err, store.ErrNoOwner) {
		err = errNoOwner(row)
	}
	return created, err
}

// checkOwnerExists rejects a new row whose owner does not exist, as a store does.
func (w *Writer) checkOwnerExists(ctx context.Context, row store.Row) error {
	if row.Owner == nil {
		return nil
	}
	_, err := w.rows.Get(ctx, *row.Owner)
	if errors.Is(err, store.ErrNotFound) {
		return errNoOwner(row)
	}
	return err
}

func errNoOwner(row store.Row) error {
	missing := &resource.Error{Code: resource.NotFound, Detail: fmt.Sprintf("%s was not written: %s does not exist",
		row.Key, row.Owner)}
	if row.Owner.Kind == kind.Meshes.Name {
		missing.Problems.Add("mesh", "%q does not exist; create the Mesh first", row.Owner.Name)
	}
	return missing
}

// isConflict returns whether a write failed because another one came first.
func isConflict(err error) bool {
	return errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound)
}

// userError makes the error of an unavailable store a [resource.Error], which a user may see.
func userError(key resource.Key, err error) error {
	if !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return &resource.Error{Code: resource.Unavailable, Detail: fmt.Sprintf("%s: %s; try again", key, store.Why(err)),
		Cause: err}
}

// checkMeshUnused rejects the deletion of a mesh that has Dataplanes. A Dataplane that is created at the same moment is
// deleted with the mesh.
func (w *Writer) checkMeshUnused(ctx context.Context, mesh resource.Key) error {
	rows, _, err := w.rows.List(ctx, kind.Dataplanes.Name)
	if err != nil {
		return userError(mesh, err)
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
