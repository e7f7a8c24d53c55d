package objects

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/table"
)

// retry is how long a failed list or watch waits before it is tried again.
const retry = time.Second

// page is how many objects one response of a list has at most.
const page = "500"

// Follower keeps [Tables] equal to the objects of an API server.
type Follower struct {
	Tables *Tables
	API    *api.Client
	// Commit changes rows of the table.
	Commit func(func(*table.Tx))
	// Outage logs failed lists and watches.
	Outage *api.Outage
	// NodeLabels are the labels of Nodes that are copied to Dataplanes.
	NodeLabels []string
}

// unmanaged selects the EndpointSlices that the controller of Kubernetes does not manage. For the others, the selectors
// of the Services name the Pods, so the changes of their readiness are not followed twice.
const unmanaged = "endpointslice.kubernetes.io/managed-by!=endpointslice-controller.k8s.io"

// grantsPath is the collection of ReferenceGrants, in the version that every release of the Gateway API serves.
const grantsPath = "/apis/gateway.networking.k8s.io/v1beta1/referencegrants"

// definitions is the collection of the definitions of kinds.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Run follows the API server until ctx ends. It commits nothing before every kind was listed completely, and a failure
// removes nothing: the rows stay until a complete list lacks them. When ctx ends, it removes all rows.
func (f *Follower) Run(ctx context.Context) {
	t := f.Tables
	sources := []*source{
		newSource(t.Pods, "/api/v1/pods", "", convert.FollowPod),
		newSource(t.Services, "/api/v1/services", "", convert.DecodeService),
		newSource(t.Slices, "/apis/discovery.k8s.io/v1/endpointslices", unmanaged, convert.DecodeEndpointSlice),
		newSource(t.Namespaces, "/api/v1/namespaces", "", convert.DecodeNamespace),
		newSource(t.Nodes, "/api/v1/nodes", "", convert.DecodeNode(f.NodeLabels)),
		optional(newSource(t.Grants, grantsPath, "", convert.DecodeReferenceGrant)),
	}
	for _, of := range convert.RouteKinds {
		s := optional(newSource(t.Routes, convert.RoutePaths[of], "", convert.DecodeRoute(of)))
		s.objects.(*typed[convert.Route]).prefix = of + " "
		sources = append(sources, s)
	}
	f.run(ctx, sources, t.SetSynced)
}

// run follows sources as Run does. synced is called when each was listed, and when ctx ends.
func (f *Follower) run(ctx context.Context, sources []*source, synced func(*table.Tx, bool)) {
	for _, s := range sources {
		s.call = f.Outage.Call()
		defer s.call.NoteSuccess() // it is not tried any more
	}
	defer f.Commit(func(tx *table.Tx) {
		synced(tx, false)
		for _, s := range sources {
			s.objects.clear(tx)
		}
	})
	var first []change
	for _, s := range sources {
		listed, ok := f.relist(ctx, s)
		if !ok {
			return
		}
		first = append(first, listed...)
	}
	first = append(first, func(tx *table.Tx) { synced(tx, true) })
	f.apply(first)
	var running sync.WaitGroup
	changes := make(chan []change, 1024)
	for _, s := range sources {
		running.Go(func() { f.follow(ctx, s, changes) })
	}
	f.commit(ctx, changes)
	running.Wait()
}

// commit commits the changes that have come since the last commit, until ctx ends.
func (f *Follower) commit(ctx context.Context, changes <-chan []change) {
	for {
		var batch []change
		select {
		case batch = <-changes:
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < cap(changes); {
			select {
			case next := <-changes:
				batch = append(batch, next...)
			default:
				more = false
			}
		}
		f.apply(batch)
	}
}

func (f *Follower) apply(changes []change) {
	f.Commit(func(tx *table.Tx) {
		for _, c := range changes {
			c(tx)
		}
	})
}

// follow sends the changes of a kind until ctx ends.
func (f *Follower) follow(ctx context.Context, s *source, changes chan<- []change) {
	send := func(some []change) {
		if len(some) == 0 {
			return
		}
		select {
		case changes <- some:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		if s.version == "" {
			f.awaitDefinition(ctx, s)
			if listed, ok := f.relist(ctx, s); ok {
				send(listed)
			}
			if s.version == "" { // the definition is established a moment before its objects are served
				pause(ctx)
			}
			continue
		}
		err := f.watch(ctx, s, send)
		switch {
		case ctx.Err() != nil:
			return
		case api.IsExpired(err), s.absent(err):
			if listed, ok := f.relist(ctx, s); ok {
				send(listed)
			}
		case errors.Is(err, io.EOF): // the server ends each stream after some minutes
		default:
			s.failed(err)
			pause(ctx)
		}
	}
}

func (f *Follower) watch(ctx context.Context, s *source, send func([]change)) error {
	stream, err := f.API.Watch(ctx, s.path, s.version, s.query())
	if err != nil {
		return err
	}
	defer stream.Close()
	s.call.NoteSuccess()
	for {
		e, err := stream.Next()
		if err != nil {
			return err
		}
		if err := s.event(e, send); err != nil {
			return err
		}
	}
}

// awaitDefinition waits until the API server serves a kind, or until ctx ends.
func (f *Follower) awaitDefinition(ctx context.Context, s *source) {
	established := func() error {
		watch, err := f.API.Watch(ctx, definitions, "", api.Options{"fieldSelector": "metadata.name=" + s.definition})
		if err != nil {
			return err
		}
		defer watch.Close()
		for {
			e, err := watch.Next()
			if err != nil {
				return err
			}
			served, err := convert.ServesVersion(e.Object, s.defined)
			if err != nil || served && e.Type != api.Deleted {
				return err
			}
		}
	}
	for ctx.Err() == nil {
		err := established()
		switch {
		case err == nil:
			s.call.NoteSuccess()
			return
		case errors.Is(err, io.EOF), ctx.Err() != nil:
		default:
			s.failed(err)
			pause(ctx)
		}
	}
}

// relist lists a kind until it succeeds, and returns the difference from the rows. ok is false where ctx ended.
func (f *Follower) relist(ctx context.Context, s *source) (changes []change, ok bool) {
	for ctx.Err() == nil {
		changes, err := s.list(ctx, f.API)
		if err == nil {
			s.call.NoteSuccess()
			return changes, true
		}
		if !api.IsExpired(err) && ctx.Err() == nil {
			s.failed(err)
			pause(ctx)
		}
	}
	return nil, false
}

func pause(ctx context.Context) {
	select {
	case <-time.After(retry):
	case <-ctx.Done():
	}
}

// change changes the rows of a kind.
type change func(*table.Tx)

// source is a kind of objects. One goroutine at a time uses it.
type source struct {
	path, selector string
	// definition is the name of the definition of an optional kind, and defined the version of the kind that is read.
	// Empty: the API server has the kind.
	definition, defined string

	version string // of the last list, event or bookmark; empty while the API server does not serve the kind
	call    *api.Call
	objects rows
}

// rows are the rows of a kind, whatever their type is.
type rows interface {
	// put and remove return the change of one object, nil where its row stays the same.
	put(raw json.RawMessage) (change, error)
	remove(raw json.RawMessage) (change, error)
	// list returns a function for each object of a list, and one that returns the difference at its end.
	list() (add func(raw json.RawMessage) error, end func() []change)
	clear(*table.Tx)
}

// typed are the rows of a table, as the commits have them or will have them.
type typed[V any] struct {
	table  table.Input[*V]
	decode func([]byte) (*V, error) // nil without an error: the object has no row
	prefix string                   // of the keys
	rows   map[string]*V
}

func newSource[V any](t table.Input[*V], path, selector string, decode func([]byte) (*V, error)) *source {
	return &source{path: path, selector: selector, objects: &typed[V]{table: t, decode: decode, rows: map[string]*V{}}}
}

// optional makes a source one of a kind that the API server may lack. Its definition is named after its collection.
func optional(s *source) *source {
	parts := strings.Split(s.path, "/") // "", "apis", GROUP, VERSION, PLURAL
	s.definition, s.defined = parts[4]+"."+parts[2], parts[3]
	return s
}

// absent reports whether an error means that the API server does not serve an optional kind.
func (s *source) absent(err error) bool { return s.definition != "" && apierrors.IsNotFound(err) }

func (t *typed[V]) put(raw json.RawMessage) (change, error) {
	key, err := t.keyIn(raw)
	if err != nil {
		return nil, err
	}
	row, err := t.decode(raw)
	if err != nil {
		return nil, err
	}
	return t.set(key, row), nil
}

// set returns the change of a row; nil removes it.
func (t *typed[V]) set(key string, row *V) change {
	had, known := t.rows[key]
	switch {
	case row == nil && !known:
		return nil
	case row == nil:
		delete(t.rows, key)
		return func(tx *table.Tx) { t.table.Delete(tx, key) }
	case known && reflect.DeepEqual(had, row):
		return nil // the object changed in fields that have no meaning here
	}
	t.rows[key] = row
	return func(tx *table.Tx) { t.table.Put(tx, row) }
}

func (t *typed[V]) remove(raw json.RawMessage) (change, error) {
	key, err := t.keyIn(raw)
	if err != nil {
		return nil, err
	}
	return t.set(key, nil), nil
}

func (t *typed[V]) list() (add func(raw json.RawMessage) error, end func() []change) {
	found := map[string]*V{}
	add = func(raw json.RawMessage) error {
		key, err := t.keyIn(raw)
		if err != nil {
			return err
		}
		row, err := t.decode(raw)
		if err != nil {
			return err
		}
		found[key] = row
		return nil
	}
	return add, func() (changes []change) {
		for key := range t.rows {
			if found[key] == nil {
				changes = append(changes, t.set(key, nil))
			}
		}
		for key, row := range found {
			if c := t.set(key, row); c != nil {
				changes = append(changes, c)
			}
		}
		return changes
	}
}

func (t *typed[V]) clear(tx *table.Tx) {
	for key := range t.rows {
		t.table.Delete(tx, key)
	}
	clear(t.rows)
}

// identity is the part of an object that names it.
type identity struct {
	Metadata struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// keyIn returns the key of an object's row.
func (t *typed[V]) keyIn(raw json.RawMessage) (string, error) {
	var o identity
	if err := json.Unmarshal(raw, &o); err != nil {
		return "", err
	}
	if o.Metadata.Namespace == "" {
		return t.prefix + o.Metadata.Name, nil
	}
	return t.prefix + o.Metadata.Name + "." + o.Metadata.Namespace, nil
}

func (s *source) query() api.Options { return api.Options{"labelSelector": s.selector} }

// list reads all objects, page by page, and returns the difference from the rows. With an error there is none.
func (s *source) list(ctx context.Context, client *api.Client) ([]change, error) {
	query := s.query()
	query["limit"] = page
	add, end := s.objects.list()
	for {
		var l struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		err := client.Get(ctx, s.path, query, &l)
		if s.absent(err) {
			s.version = ""
			_, none := s.objects.list()
			return none(), nil
		}
		if err != nil {
			return nil, err
		}
		for _, raw := range l.Items {
			if err := add(raw); err != nil {
				return nil, err
			}
		}
		if query["continue"] = l.Metadata.Continue; l.Metadata.Continue == "" {
			s.version = l.Metadata.ResourceVersion
			return end(), nil
		}
	}
}

// event sends the change of an event of the watch.
func (s *source) event(e api.Event, send func([]change)) error {
	var c change
	var err error
	switch e.Type {
	case api.Bookmark:
	case api.Deleted:
		c, err = s.objects.remove(e.Object)
	default:
		c, err = s.objects.put(e.Object)
	}
	var o identity
	if err == nil {
		err = json.Unmarshal(e.Object, &o)
	}
	if err != nil {
		return err
	}
	if s.version = o.Metadata.ResourceVersion; c != nil {
		send([]change{c})
	}
	return nil
}

func (s *source) failed(err error) {
	s.call.NoteFailure(err, "Kubernetes objects are not followed; their rows stay as they are", "path", s.path)
}
