package kube

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// owner is the object that owns a row. Another object with the same key is another owner.
type owner struct {
	resource.Key
	UID string `json:"uid"`
}

// natives are objects of Kubernetes itself that own rows, with their plurals. The API server deletes a row with such an
// owner, which is in the namespace of the row: the owner is an owner reference, and the row has no owner of this store.
var natives = map[string]string{"Pod": "pods", "Service": "services"}

// nativeUID returns the UID of an object of Kubernetes itself, by NAME.NAMESPACE; empty without the object.
func (s *Store) nativeUID(ctx context.Context, key resource.Key) (string, error) {
	at := strings.LastIndexByte(key.Name, '.')
	var o struct{ Metadata struct{ UID string } }
	path := "/api/v1/namespaces/" + key.Name[at+1:] + "/" + natives[key.Kind] + "/" + key.Name[:max(at, 0)]
	err := s.api.Get(ctx, path, nil, &o)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return o.Metadata.UID, failure(err, false)
}

// uid returns the UID of a row's object; empty without the row.
func (s *Store) uid(ctx context.Context, key resource.Key) (string, error) {
	if natives[key.Kind] != "" {
		return s.nativeUID(ctx, key)
	}
	_, o, _, err := s.find(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return o.Metadata.UID, nil
}

// collect deletes the rows of an owner that does not exist any more, and not those of an owner that has its key now.
// The API server's own collector can't: it deletes only objects in the namespace of the owner.
func (s *Store) collect(ctx context.Context, key resource.Key) error {
	uid, err := s.uid(ctx, key)
	if err != nil {
		return err
	}
	for _, at := range s.ownable(key.Kind) {
		if _, err := s.each(ctx, at, at.selectorWith(ownerLabel+"="+digest(key)), func(o *object) error {
			if by := ownerIn(o); by == nil || by.UID == uid {
				return nil
			}
			return s.deleteObject(ctx, at, o)
		}); err != nil {
			return failure(err, true)
		}
	}
	return nil
}

// deleteObject deletes an object with the rows that it owns.
func (s *Store) deleteObject(ctx context.Context, at place, o *object) error {
	key, err := at.keyOf(o)
	if err != nil {
		return err
	}
	at.name, at.namespace = o.Metadata.Name, o.Metadata.Namespace
	if err := s.api.Delete(ctx, at.path(), o.Metadata.UID, ""); err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		return err
	}
	if !s.owns(key.Kind) {
		return nil
	}
	return s.collect(ctx, key)
}

// deletion is a deletion of an owner by this store, which deletes the rows of the owner too.
type deletion struct {
	done chan struct{}
	err  error // after done
}

// deleteOwner deletes an object, if it did not change since it was read, and the rows that it owns. followOwners, which
// learns of the deletion, leaves these rows to it. The version of a row is of one object alone, so no other deletion is
// taken for this one.
func (s *Store) deleteOwner(ctx context.Context, at place, o *object, row store.Row) error {
	mine := &deletion{done: make(chan struct{})}
	defer close(mine.done)
	for owner := range s.owners() {
		if owner == row.Key.Kind {
			s.mu.Lock()
			s.deleted[owner+"/"+row.Version] = mine
			s.mu.Unlock()
		}
	}
	err := s.api.Delete(ctx, at.path(), o.Metadata.UID, o.Metadata.ResourceVersion)
	s.recent.drop(at)
	if err != nil {
		s.takeDeletion(row)
		mine.err = err
		return unlessConflict(err)
	}
	if s.owns(row.Key.Kind) {
		mine.err = s.collect(ctx, row.Key)
	}
	return mine.err
}

// takeDeletion returns the deletion of a row by this store; nil where others have deleted it.
func (s *Store) takeDeletion(row store.Row) *deletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := row.Key.Kind + "/" + row.Version
	found := s.deleted[key]
	delete(s.deleted, key)
	return found
}

// removeDeletions removes the deletions of a kind, whose events no watch sends any more.
func (s *Store) removeDeletions(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.deleted, func(key string, _ *deletion) bool { return strings.HasPrefix(key, kind+"/") })
}

// collected reports whether this store has deleted the rows of a deleted owner with it.
func (s *Store) collected(owner store.Row) bool {
	by := s.takeDeletion(owner)
	if by == nil {
		return false
	}
	select {
	case <-by.done:
		return by.err == nil
	case <-s.ctx.Done():
		return false
	}
}

// owns reports whether rows of a kind may own others. Nothing is known of a kind that is not described.
func (s *Store) owns(kind string) bool {
	return s.kinds[kind] == nil ||
		slices.ContainsFunc(s.options.Kinds, func(k Kind) bool { return k.Owner == kind })
}

// owners returns the kinds of owners that others delete too, such as users with kubectl.
func (s *Store) owners() iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, k := range s.options.Kinds {
			if of := s.kinds[k.Owner]; of != nil && of.Plural != "" && !seen[k.Owner] {
				if seen[k.Owner] = true; !yield(k.Owner) {
					return
				}
			}
		}
	}
}

// collectDeleted deletes the rows of owners of a kind after the owners, until the store is closed.
func (s *Store) collectDeleted(kind string) {
	call := s.options.Outage.Call()
	for s.ctx.Err() == nil {
		err := s.followOwners(kind)
		if s.ctx.Err() != nil || err == nil {
			call.NoteSuccess()
			continue
		}
		call.NoteFailure(err, "rows of deleted owners were not deleted; it is tried until it succeeds", "owner", kind)
		select {
		case <-time.After(retry):
		case <-s.ctx.Done():
		}
	}
}

// followOwners deletes the rows whose owners of a kind were deleted, until the watch of the owners ends.
func (s *Store) followOwners(kind string) error {
	s.removeDeletions(kind)
	at, uids := s.rowsOf(kind), map[resource.Key]string{}
	version, err := s.each(s.ctx, at, at.selector(), func(o *object) error {
		key, err := at.keyOf(o)
		uids[key] = o.Metadata.UID
		return err
	})
	if api.IsExpired(err) {
		return nil
	}
	if err != nil {
		return err
	}
	deleted, err := s.ownersLost(kind, uids)
	if err != nil {
		return err
	}
	for key := range deleted {
		if err := s.collect(s.ctx, key); err != nil {
			return err
		}
	}
	events, err := s.Watch(s.ctx, []string{kind}, s.cursor(version))
	if err != nil {
		return err
	}
	for batch := range events {
		for _, e := range batch {
			if !e.Deleted || s.collected(e.Row) {
				continue
			}
			if err := s.collect(s.ctx, e.Row.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownersLost returns the owners that rows have, and that are not among the owners that exist.
func (s *Store) ownersLost(kind string, uids map[resource.Key]string) (map[resource.Key]bool, error) {
	lost := map[resource.Key]bool{}
	for _, at := range s.ownable(kind) {
		_, err := s.each(s.ctx, at, at.selectorWith(ownerKindLabel+"="+kind), func(o *object) error {
			if by := ownerIn(o); by != nil && uids[by.Key] != by.UID {
				lost[by.Key] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}
