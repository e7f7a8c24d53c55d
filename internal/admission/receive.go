package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"weft/internal/pki"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Received is a resource of another control plane, as its owner stored it.
type Received struct {
	Kind resource.Descriptor
	Mesh string
	Name string // at its owner, [kind.OwnerName]
	// Owner is the owner, as authenticated by the transport.
	Owner kind.Owner
	Body  []byte // resource.Body
}

// Key returns the key under which the resource is stored here, unless another resource has the key.
func (r *Received) Key() resource.Key {
	info := r.Kind.Describe()
	return resource.Key{Kind: info.Name, Mesh: r.Mesh, Name: kind.SyncedName(info, r.Mesh, r.Name, r.Owner)}
}

// LongerKey returns the key under which the resource is stored here where another resource has [Received.Key].
func (r *Received) LongerKey() resource.Key {
	return resource.Key{Kind: r.Kind.Describe().Name, Mesh: r.Mesh,
		Name: kind.LongerSyncedName(r.Mesh, r.Name, r.Owner)}
}

// ReceivedRow is the row of a received resource.
type ReceivedRow struct {
	Key     resource.Key
	Version string // empty: there is no row
}

// Receive stores a resource of another control plane, byte for byte, so that fields that this release does not know are
// kept. It checks that the resource is readable and valid, and that its labels name its owner.
//
// Errors are Invalid, NotFound for the mesh or owner that is missing here, Conflict with a resource of this control
// plane, and Unavailable. After each of them the call may be repeated.
func (w *Writer) Receive(ctx context.Context, r Received) error {
	_, err := w.ReceiveAt(ctx, r, nil)
	return err
}

// ReceiveAt is [Writer.Receive] for a caller that knows the row that the resource replaces, or that there is none; nil:
// it is not known. The row is an earlier state of the resource. If it has another version by now, it is read. ReceiveAt
// returns the stored row.
func (w *Writer) ReceiveAt(ctx context.Context, r Received, known *ReceivedRow) (ReceivedRow, error) {
	if known != nil {
		o, err := w.checkReceived(known.Key, &r)
		if err != nil {
			return *known, userError(known.Key, err)
		}
		// An error may come from a row that was written since, so it is read for the next attempt.
		if version, err := w.replace(ctx, o, &r, nil, known.Version); err == nil {
			return ReceivedRow{known.Key, version}, nil
		}
	}
	for {
		row, err := w.receiveOnce(ctx, &r)
		if isConflict(err) {
			continue // another write came first: read again
		}
		return row, userError(row.Key, err)
	}
}

func (w *Writer) receiveOnce(ctx context.Context, r *Received) (ReceivedRow, error) {
	key, stored, err := w.receivedPlace(ctx, r)
	row := ReceivedRow{Key: key}
	if err != nil {
		return row, err
	}
	o, err := w.checkReceived(key, r)
	if err != nil {
		return row, err
	}
	if stored != nil {
		row.Version = stored.row.Version
		if err := w.checkReplaceable(stored, r); err != nil || bytes.Equal(r.Body, stored.row.Body) {
			return row, err
		}
	}
	row.Version, err = w.replace(ctx, o, r, stored, row.Version)
	return row, err
}

// receivedPlace returns the key of a received resource, and what is stored there. A resource that has a row keeps its
// key. A new one has [Received.LongerKey] where another resource has its key. What is deleted with a resource, such as
// the insight of a Dataplane, has its name.
func (w *Writer) receivedPlace(ctx context.Context, r *Received) (resource.Key, *current, error) {
	key, info := r.Key(), r.Kind.Describe()
	if owner := ownerOf(key); kind.HasSyncedName(info) && owner != nil && owner.Kind != kind.Meshes.Name {
		of := *r
		of.Kind = kind.ByName(owner.Kind)
		place, _, err := w.receivedPlace(ctx, &of)
		if err != nil {
			return key, nil, err
		}
		key.Name = place.Name
		stored, err := w.stored(ctx, key)
		return key, stored, err
	}
	stored, err := w.stored(ctx, key)
	if err != nil || !kind.HasSyncedName(info) || stored != nil && w.isCopy(stored, r) {
		return key, stored, err
	}
	longer := r.LongerKey()
	switch at, err := w.stored(ctx, longer); {
	case err != nil || at != nil:
		return longer, at, err
	case stored == nil || w.checkReplaceable(stored, r) == nil:
		return key, stored, nil
	}
	return longer, nil, nil
}

// isCopy returns whether the resource that is stored at [Received.Key] is the received one.
func (w *Writer) isCopy(stored *current, r *Received) bool {
	meta := stored.object.Envelope()
	return w.owner(meta) == r.Owner && kind.IsCopyOf(r.Kind.Describe(), meta, r.Name, r.Owner)
}

// replace stores a checked resource in place of the row with a version; empty: as a new row. Where stored is nil, what
// a zone writes about trust domains is checked as if it were new.
func (w *Writer) replace(ctx context.Context, o resource.Any, r *Received, stored *current, version string) (string,
	error) {
	if err := w.checkTrust(ctx, o, r.Owner, stored, true, false); err != nil {
		return "", err
	}
	row := store.Row{Key: o.Key(), Version: version, Body: r.Body}
	var err error
	if version != "" {
		row, err = w.rows.Update(ctx, row)
		return row.Version, err
	}
	row.Owner = ownerOf(row.Key)
	created, err := w.rows.Create(ctx, row)
	if errors.Is(err, store.ErrNoOwner) {
		err = w.errMissing(row)
	}
	return created.Version, err
}

// checkReceived returns the received resource, or its problems. It makes the same checks for every sender.
func (w *Writer) checkReceived(key resource.Key, r *Received) (resource.Any, error) {
	if err := resource.CheckBody(r.Kind, r.Body); err != nil {
		return nil, err
	}
	o, err := resource.FromBody(r.Kind, resource.Meta{Mesh: key.Mesh, Name: key.Name}, r.Body)
	if err != nil {
		return nil, resource.Errorf(resource.Invalid, "%s can't be read: %v", key, err)
	}
	problems := checkScope(r.Kind.Describe(), key)
	if problem := resource.NameProblem(r.Name); problem != "" {
		problems.Add("name", "%s", problem)
	}
	problems = append(problems, r.Kind.Prepare(o)...)
	meta := o.Envelope()
	origin, zone := kind.OriginGlobal, ""
	if !r.Owner.Global() {
		origin, zone = kind.OriginZone, r.Owner.Zone
	}
	namespace, namespaced := meta.Labels[kind.NamespaceLabel]
	display := r.Name
	if namespaced && !kind.OfOperators(key.Kind) {
		display = strings.TrimSuffix(r.Name, "."+namespace)
	}
	for _, label := range []struct{ name, want string }{
		{kind.DisplayName, display}, {kind.OriginLabel, origin}, {kind.ZoneLabel, zone},
	} {
		if got := meta.Label(label.name); got != label.want {
			problems.Add("labels["+label.name+"]", "is %.100q, want %q, from %s", got, label.want,
				ownerPhrase(r.Owner))
		}
	}
	switch {
	case namespaced && !kind.IsNamespace(namespace):
		problems.Add("labels["+kind.NamespaceLabel+"]", "%.100q is not a namespace", namespace)
	case namespaced && meta.Label(kind.EnvLabel) != kind.Kubernetes:
		problems.Add("labels["+kind.NamespaceLabel+"]", "is %q, and the label %s is %.100q, want %q", namespace,
			kind.EnvLabel, meta.Label(kind.EnvLabel), kind.Kubernetes)
	}
	problems = append(problems, w.statedSNIProblems(o, w.otherOwnersOfReceived)...)
	if zone, ok := zoneOf(o); ok && zone != r.Owner.Zone {
		problems.Add("zone", "is %.100q, and %s sent it", zone, ownerPhrase(r.Owner))
	}
	if len(problems) > 0 {
		return nil, &resource.Error{Code: resource.Invalid, Detail: key.String() + " is invalid", Problems: problems}
	}
	return o, nil
}

// zoneOf returns the zone in the spec of a zone proxy of global scope.
func zoneOf(o resource.Any) (zone string, ok bool) {
	switch o := o.(type) {
	case *resource.Object[kind.ZoneIngress]:
		return o.Spec.Zone, true
	case *resource.Object[kind.ZoneEgress]:
		return o.Spec.Zone, true
	}
	return "", false
}

// checkReplaceable returns an error where a received resource may not replace the stored one. It may replace a Mesh of
// this control plane, a hidden kind, and a resource with an equal spec. It never replaces a resource of a third control
// plane, nor one that this zone took from global and a user has written since.
func (w *Writer) checkReplaceable(stored *current, r *Received) error {
	meta := stored.object.Envelope()
	info := r.Kind.Describe()
	switch owner := w.owner(meta); {
	case owner != r.Owner && owner != w.self():
	case owner == r.Owner, info.Name == kind.Meshes.Name, info.Hidden:
		return nil
	case equalSpecs(stored.row.Body, r.Body):
		return nil
	}
	return resource.Errorf(resource.Conflict,
		"%s of %s was not accepted: %s has one of the same name; delete that one, or rename one of the two",
		stored.row.Key, ownerPhrase(r.Owner), ownerPhrase(w.owner(meta)))
}

func equalSpecs(a, b []byte) bool {
	var first, second struct{ Spec json.RawMessage }
	return json.Unmarshal(a, &first) == nil && json.Unmarshal(b, &second) == nil && bytes.Equal(first.Spec, second.Spec)
}

// errMissing returns the error for the missing mesh or owner of a received resource.
func (w *Writer) errMissing(row store.Row) error {
	switch {
	case row.Owner.Kind != kind.Meshes.Name:
		return resource.Errorf(resource.NotFound, "%s does not exist here yet", row.Owner)
	case w.self().Global():
		return resource.Errorf(resource.NotFound,
			"the Mesh %q does not exist on the global control plane; create it there", row.Owner.Name)
	}
	return resource.Errorf(resource.NotFound, "the Mesh %q does not exist in the zone %q yet", row.Owner.Name, w.zone)
}

// RemoveReceived removes a resource that its owner has deleted. A resource that belongs to another owner by now is kept
// without an error. A mesh that still has Dataplanes here, or resources that users of this control plane wrote, is kept
// with an error: Conflict.
func (w *Writer) RemoveReceived(ctx context.Context, r Received) error {
	_, err := w.RemoveReceivedAt(ctx, r)
	return err
}

// RemoveReceivedAt is [Writer.RemoveReceived], and returns the key of the resource.
func (w *Writer) RemoveReceivedAt(ctx context.Context, r Received) (resource.Key, error) {
	for {
		key, stored, err := w.receivedPlace(ctx, &r)
		if err != nil || stored == nil || w.owner(stored.object.Envelope()) != r.Owner {
			return key, userError(key, err)
		}
		if key.Kind == kind.Meshes.Name {
			err := w.checkMeshUnused(ctx, key)
			if err == nil {
				err = w.checkMeshLosesNothing(ctx, key)
			}
			if err != nil {
				return key, err
			}
		}
		if err = w.rows.Delete(ctx, key, stored.row.Version); !isConflict(err) {
			return key, userError(key, err)
		}
	}
}

// checkMeshLosesNothing rejects the deletion of a received mesh that has resources of this control plane's users: they
// would be deleted with it. Resources that the control plane generates do not count, apart from signing keys, without
// which the tokens of the zone are invalid.
func (w *Writer) checkMeshLosesNothing(ctx context.Context, mesh resource.Key) error {
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Scope != resource.Mesh || info.ReadOnly || info.Hidden || info.Name == kind.MeshTrusts.Name {
			continue
		}
		rows, _, err := w.rows.List(ctx, info.Name)
		if err != nil {
			return userError(mesh, err)
		}
		for _, row := range rows {
			if row.Key.Mesh == mesh.Name && w.isOfUsers(row) {
				return resource.Errorf(resource.Conflict, "%s still has resources of %s, such as %s, which would be "+
					"deleted with it; delete them first, or create the Mesh on the global control plane", mesh,
					ownerPhrase(w.self()), row.Key)
			}
		}
	}
	return nil
}

// isOfUsers returns whether users of this control plane may have written a row.
func (w *Writer) isOfUsers(row store.Row) bool {
	o, err := Decode(row)
	if err != nil {
		return true
	}
	meta := o.Envelope()
	generated := meta.Label(kind.ManagedBy) == kind.GeneratedBy ||
		row.Key.Kind == kind.Secrets.Name && strings.HasPrefix(row.Key.Name, pki.CASecretName(""))
	return w.owner(meta) == w.self() && !generated
}
