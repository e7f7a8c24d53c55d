// Package kube is a store on the API server of Kubernetes.
//
// A row of a kind that users know is an object of the kind's definition. A row with a status is the status of the
// object that it belongs to. A row of the control plane itself is a [RecordKind] in the system namespace, or, where it
// holds private keys, a Kubernetes Secret there. The package knows no kind: [Options] describes them.
//
// The version of a row is a hash of what belongs to the row, because the API server's version also changes with writes
// of the status. Times have whole seconds, except those of records.
package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// RecordKind is the kind of the objects that have the control plane's own rows, and RecordPlural its name in paths.
const (
	RecordKind   = "Record"
	RecordPlural = "records"
)

// Kind says where the rows of a kind are.
type Kind struct {
	Name string
	// Plural is the name in paths; empty for rows of the control plane itself.
	Plural string
	// Namespaced is true for objects in namespaces. Their rows have the name NAME.NAMESPACE.
	Namespaced bool
	// System is true for objects that are in the system namespace alone. Any other end of a row's name is part of the
	// object's name, so mesh.mtls is the object mesh.mtls of the system namespace.
	System bool
	// Meshed is true for rows that belong to a mesh.
	Meshed bool
	// MeshField is true for objects with `mesh` beside the metadata.
	MeshField bool
	// StatusOf is the kind whose objects' status the rows are.
	StatusOf string
	// SecretType is the type of the Kubernetes Secrets that the rows are, for kinds that users write as such.
	SecretType string
	// Owner is the kind that owns the rows; empty for rows without an owner.
	Owner string
	// Private is true for rows of the control plane itself that only it may read.
	Private bool
	// Lease returns the Lease in which a row of the control plane itself is, for rows that are renewed while a replica
	// lives. nil: the rows are none.
	Lease func(name string, body []byte) Lease
	// Normal returns a body in the form in which the control plane writes it. nil: the API server's form.
	Normal func(body []byte) []byte
}

// Lease is what other readers of a Lease see. The row itself is an annotation of the Lease. (Kubernetes API,
// coordination.k8s.io/v1.)
type Lease struct {
	Name   string // of the object
	Holder string
	// Transitions is the number of changes of the holder. The Lease of a replica has none, and is renewed instead.
	Transitions uint64
}

// Options shape a store.
type Options struct {
	// Namespace is the system namespace.
	Namespace string
	// Kinds are the known kinds. The rows of every other kind are records.
	Kinds []Kind
	// LeaseDuration is the time without a renewal after which a Lease has expired, for other readers of the Leases.
	LeaseDuration time.Duration
	// Backlog is how many events wait for a watcher at most; 0 means 100,000. A watcher that lags more is closed.
	Backlog int
	// Outage logs failed watches; nil discards them.
	Outage *api.Outage
	// WentBack is called once if the API server has an earlier state than the store has seen, as after a restoration of
	// its etcd. Watches that find it send nothing more. nil: they end, so that their readers list again.
	WentBack func(error)
}

const defaultBacklog = 100_000

// Store implements [store.Store].
type Store struct {
	api     *api.Client
	options Options
	kinds   map[string]*Kind
	// cluster begins every cursor, so that a cursor of another cluster is not taken for one of this.
	cluster string

	ctx     context.Context // ends when the store is closed
	stop    context.CancelFunc
	running sync.WaitGroup // watchers and collectors
	mu      sync.Mutex     // guards closed, deleted and additions to running
	closed  bool
	deleted map[string]*deletion // by kind and version of the row
	history history
	recent  recent
}

var _ store.Store = (*Store)(nil)

// Open returns a store. The definitions of the kinds must exist. Without the system namespace the error is
// ErrNoNamespace.
func Open(ctx context.Context, config *rest.Config, o Options) (*Store, error) {
	client, err := api.New(config)
	if err != nil {
		return nil, err
	}
	o.Backlog = cmp.Or(o.Backlog, defaultBacklog)
	s := &Store{api: client, options: o, kinds: map[string]*Kind{}, deleted: map[string]*deletion{},
		recent: newRecent()}
	for i := range o.Kinds {
		s.kinds[o.Kinds[i].Name] = &o.Kinds[i]
	}
	var system struct{ Metadata struct{ UID string } }
	if err := client.Get(ctx, "/api/v1/namespaces/"+o.Namespace, nil, &system); err != nil {
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w: %s", ErrNoNamespace, o.Namespace)
		}
		return nil, failure(err, false)
	}
	s.cluster = system.Metadata.UID
	s.ctx, s.stop = context.WithCancel(context.Background())
	for owner := range s.owners() {
		s.running.Go(func() { s.collectDeleted(owner) })
	}
	return s, nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	return nil
}

// usable returns an error for a closed store and an ended context.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return store.ErrUnavailable
	}
	return ctx.Err()
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	_, _, row, err := s.find(ctx, key)
	return row, err
}

// find returns the object of a row, with its place, and the row. An object whose status was never written is returned
// with ErrNotFound.
func (s *Store) find(ctx context.Context, key resource.Key) (at place, o *object, row store.Row, err error) {
	places, err := s.places(key)
	if err != nil {
		return place{}, nil, store.Row{}, store.ErrNotFound
	}
	var ofOthers error // of a Secret of others with the name
	for _, at = range places {
		o, row, err = s.findAt(ctx, at, key)
		switch {
		case errors.Is(err, errOfOthers):
			ofOthers = err
		case o != nil, !errors.Is(err, store.ErrNotFound):
			return at, o, row, err
		}
	}
	return places[0], nil, store.Row{}, cmp.Or(ofOthers, err)
}

// errOfOthers is the error of a row whose object would be a Kubernetes Secret of another type. It is none of the
// control plane's, which neither reads nor replaces it.
var errOfOthers = errors.New("is a Kubernetes Secret of another type; choose another name")

// findAt is [Store.find] at one place.
func (s *Store) findAt(ctx context.Context, at place, key resource.Key) (*object, store.Row, error) {
	var o object
	if err := s.api.Get(ctx, at.path(), nil, &o); err != nil {
		if apierrors.IsNotFound(err) {
			s.recent.drop(at)
		}
		return nil, store.Row{}, s.ended(ctx, failure(err, false))
	}
	s.recent.keep(at, &o)
	return at.found(&o, key)
}

// found returns an object that is at the place of a row, and the row, as [Store.find] does.
func (p place) found(o *object, key resource.Key) (*object, store.Row, error) {
	if p.of.SecretType != "" && o.Type != p.of.SecretType {
		return nil, store.Row{}, fmt.Errorf("%s %w", o.Metadata.Name, errOfOthers)
	}
	if has, err := p.keyOf(o); err != nil || has != key {
		return nil, store.Row{}, cmp.Or(err, store.ErrNotFound)
	}
	row, ok, err := p.row(o)
	if err == nil && !ok {
		err = store.ErrNotFound
	}
	return o, row, err
}

// ended returns the error of an ended context or a closed store in place of the failure that it causes.
func (s *Store) ended(ctx context.Context, err error) error {
	if gone := s.usable(ctx); gone != nil && err != nil {
		return gone
	}
	return err
}

// page is how many objects one response of a list has at most.
const page = "500"

type list struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// Streams implements [store.Store]. The API server has no order of the writes of several kinds, and each kind is
// followed without the others: one that cannot be read stops none of them.
func (s *Store) Streams(kinds []string) [][]string { return slices.Collect(slices.Chunk(kinds, 1)) }

// only returns the kind of a stream.
func only(kinds []string) string {
	if len(kinds) != 1 {
		panic(fmt.Sprintf("kube: one list or watch of the kinds %q", kinds))
	}
	return kinds[0]
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	at := s.rowsOf(only(kinds))
	for {
		rows, version, err := s.list(ctx, at)
		if api.IsExpired(err) {
			continue // the list took longer than the server keeps its version
		}
		if err != nil {
			return nil, "", s.ended(ctx, failure(err, false))
		}
		slices.SortFunc(rows, func(a, b store.Row) int { return a.Key.Compare(b.Key) })
		return rows, s.cursor(version), nil
	}
}

func (s *Store) list(ctx context.Context, at place) (rows []store.Row, version string, err error) {
	version, err = s.each(ctx, at, at.selector(), func(o *object) error {
		row, ok, err := at.row(o)
		if ok {
			rows = append(rows, row)
		}
		return err
	})
	return rows, version, err
}

// each calls with every selected object of a place, and returns the version of the list.
func (s *Store) each(ctx context.Context, at place, selector api.Options, call func(*object) error) (string, error) {
	return s.eachAt(ctx, at, selector, "", call)
}

// eachAt is [Store.each] for the objects as they were at a version; empty: as they are now.
func (s *Store) eachAt(ctx context.Context, at place, selector api.Options, version string,
	call func(*object) error) (string, error) {
	selector["limit"] = page
	if version != "" {
		selector["resourceVersion"], selector["resourceVersionMatch"] = version, "Exact"
	}
	for {
		var l list
		if err := s.api.Get(ctx, at.collection(), selector, &l); err != nil {
			return "", err
		}
		for i := range l.Items {
			if err := call(&l.Items[i]); err != nil {
				return "", err
			}
		}
		if selector["continue"] = l.Metadata.Continue; l.Metadata.Continue == "" {
			return l.Metadata.ResourceVersion, nil
		}
		delete(selector, "resourceVersion") // the continuation has it
		delete(selector, "resourceVersionMatch")
	}
}

func (s *Store) cursor(version string) store.Cursor { return store.Cursor(s.cluster + "/" + version) }

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, row store.Row) (store.Row, error) {
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	places, err := s.places(row.Key)
	if err != nil {
		return store.Row{}, err
	}
	at := places[0]
	object := resource.Key{Kind: at.kind.StatusOf, Mesh: row.Key.Mesh, Name: row.Key.Name}
	if object.Kind != "" && row.Owner != nil && *row.Owner == object {
		created, err := s.createStatus(ctx, row) // which finds the owner
		return created, s.ended(ctx, err)
	}
	by, err := s.keptOwner(ctx, row)
	if err != nil {
		return store.Row{}, err
	}
	for _, former := range places[1:] {
		if o, _, err := s.findAt(ctx, former, row.Key); o != nil || !errors.Is(err, store.ErrNotFound) {
			return store.Row{}, s.ended(ctx, cmp.Or(err, store.ErrExists))
		}
	}
	for range conflicts {
		created, err := s.createOwned(ctx, at, row, by)
		if err != nil {
			return store.Row{}, s.ended(ctx, err)
		}
		if row.Owner == nil || natives[by.Kind] != "" {
			return created, nil // the API server knows whether the owner exists
		}
		// The owner may have been deleted before the write, after its rows were looked for, and another one created.
		now, missing := s.ownerOf(ctx, row)
		if missing == nil && now == by || missing != nil && !errors.Is(missing, store.ErrNoOwner) {
			return created, nil
		}
		if err := s.Delete(ctx, row.Key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Row{}, err
		}
		if missing != nil {
			return store.Row{}, missing
		}
		by = now
	}
	return store.Row{}, store.ErrNoOwner
}

func (s *Store) createOwned(ctx context.Context, at place, row store.Row, by owner) (store.Row, error) {
	if at.kind.StatusOf != "" {
		return s.createStatus(ctx, row)
	}
	return s.createObject(ctx, at, row, by)
}

// keptOwner returns the owner of a new row as this store last had it, else [Store.ownerOf].
func (s *Store) keptOwner(ctx context.Context, row store.Row) (owner, error) {
	if row.Owner != nil && natives[row.Owner.Kind] == "" {
		if _, o, _, err := s.recentOf(*row.Owner); err == nil {
			return owner{*row.Owner, o.Metadata.UID}, nil
		}
	}
	return s.ownerOf(ctx, row)
}

// ownerOf returns the owner of a new row, or ErrNoOwner.
func (s *Store) ownerOf(ctx context.Context, row store.Row) (owner, error) {
	if row.Owner == nil {
		return owner{}, nil
	}
	uid, err := s.uid(ctx, *row.Owner)
	if err == nil && uid == "" {
		err = store.ErrNoOwner
	}
	return owner{*row.Owner, uid}, err
}

func (s *Store) createObject(ctx context.Context, at place, row store.Row, by owner) (store.Row, error) {
	var o object
	if err := at.newObject(&o, row, by); err != nil {
		return store.Row{}, err
	}
	var stored object
	if err := s.api.Create(ctx, at.collection(), &o, &stored); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return store.Row{}, s.exists(ctx, at, row.Key)
		}
		return store.Row{}, failure(err, true)
	}
	s.history.wrote(at, row, &stored)
	s.recent.keep(at, &stored)
	created, _, err := at.row(&stored)
	return created, err
}

// exists returns the error of a row whose object exists: ErrExists if it has the row, else a Conflict, since reading
// the row again does not find it.
func (s *Store) exists(ctx context.Context, at place, key resource.Key) error {
	var o object
	switch err := s.api.Get(ctx, at.path(), nil, &o); {
	case apierrors.IsNotFound(err):
		return store.ErrExists // it was deleted meanwhile
	case err != nil:
		return failure(err, false)
	}
	has := "is not of this control plane"
	if found, err := at.keyOf(&o); err == nil && found == key {
		return store.ErrExists
	} else if err == nil {
		has = "is " + found.String()
	}
	return &resource.Error{Code: resource.Conflict, Detail: fmt.Sprintf("%s was not written: the object %s exists, "+
		"and %s; delete it, or choose another name", key, at.path(), has)}
}

// conflicts bounds the attempts of a write whose object changes meanwhile, without a change of the row.
const conflicts = 20

func (s *Store) createStatus(ctx context.Context, row store.Row) (store.Row, error) {
	if at, o, _, err := s.recentOf(row.Key); o != nil && errors.Is(err, store.ErrNotFound) {
		if written, err := s.put(ctx, at, o, row); !apierrors.IsConflict(err) {
			return written, notOwned(err)
		}
	}
	uid := "" // of the object at the first attempt that reads it
	for range conflicts {
		at, o, _, err := s.find(ctx, row.Key)
		switch {
		case err == nil:
			return store.Row{}, store.ErrExists
		case !errors.Is(err, store.ErrNotFound):
			return store.Row{}, err
		case o == nil || uid != "" && uid != o.Metadata.UID:
			return store.Row{}, store.ErrNoOwner
		}
		uid = o.Metadata.UID
		if written, err := s.put(ctx, at, o, row); !apierrors.IsConflict(err) {
			return written, notOwned(err)
		}
	}
	return store.Row{}, store.ErrExists
}

func notOwned(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrNoOwner
	}
	return err
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, row store.Row) (store.Row, error) {
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	for attempt := range conflicts {
		at, o, stored, err := s.findVersion(ctx, row.Key, row.Version, attempt)
		switch {
		case err != nil:
			return store.Row{}, err
		case stored.Version != row.Version:
			return store.Row{}, store.ErrStale
		}
		written, err := s.put(ctx, at, o, row)
		if !apierrors.IsConflict(err) {
			return written, s.ended(ctx, err)
		}
	}
	return store.Row{}, store.ErrStale
}

// put replaces an object, if it did not change since it was read, with the content of a row.
func (s *Store) put(ctx context.Context, at place, o *object, row store.Row) (store.Row, error) {
	if err := at.fill(o, row); err != nil {
		return store.Row{}, err
	}
	var stored object
	if err := s.api.Update(ctx, at.path()+at.subresource(), o, &stored); err != nil {
		if apierrors.IsConflict(err) {
			return store.Row{}, err
		}
		return store.Row{}, failure(err, true)
	}
	s.history.wrote(at, row, &stored)
	s.recent.keep(at, &stored)
	written, _, err := at.row(&stored)
	return written, err
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, key resource.Key, version string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for attempt := range conflicts {
		at, o, row, err := s.findVersion(ctx, key, version, attempt)
		switch {
		case err != nil:
			return err
		case version != "" && version != row.Version:
			return store.ErrStale
		}
		if at.kind.StatusOf != "" {
			o.Status, o.Metadata.ManagedFields = nil, nil
			err = unlessConflict(s.api.Update(ctx, at.path()+at.subresource(), o, nil))
		} else {
			err = s.deleteOwner(ctx, at, o, row)
		}
		if !apierrors.IsConflict(err) {
			return s.ended(ctx, err)
		}
	}
	return store.ErrStale
}

// digest returns the short form of a key in names and labels.
func digest(key resource.Key) string {
	raw, _ := json.Marshal(key)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
