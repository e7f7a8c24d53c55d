package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"weft/internal/kube/api"
	"weft/internal/store"
)

// errWentBack is the error of an API server whose etcd was restored from a backup.
var errWentBack = errors.New("the API server has an earlier state than this control plane has seen")

// history is what the API server must still have, unless it was restored from a backup: the Lease of this replica,
// which this store alone writes, every few seconds. A backup that is younger than the last renewal, or older than the
// Lease, is only found by its version.
type history struct {
	mu       sync.Mutex
	lease    metadata // as it was last written; no UID: none was
	reported sync.Once
}

// wrote records a written row if it is the Lease of a replica. The Lease of the leadership has many writers.
func (h *history) wrote(at place, row store.Row, o *object) {
	if at.of.Lease == nil || at.of.Lease(row.Key.Name, row.Body).Transitions > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = o.Metadata
}

// checkHistory returns errWentBack if the API server has an earlier state than a watch of a collection, up to a
// version, or a write of this store has seen. Writes since the restoration may have made the version a later one: then
// the Lease of this replica is older than it was last written. A Lease that is missing says nothing, because another
// replica may have deleted it. Versions are compared within one resource, since the API server may keep each in an etcd
// of its own.
func (s *Store) checkHistory(ctx context.Context, collection, version string) error {
	s.history.mu.Lock()
	last := s.history.lease
	s.history.mu.Unlock()
	var now, leases list
	if err := s.api.Get(ctx, collection, api.Options{"limit": "1"}, &now); err != nil {
		return err
	}
	if earlier(now.Metadata.ResourceVersion, version) {
		return fmt.Errorf("%w: version %s, and was %s", errWentBack, now.Metadata.ResourceVersion, version)
	}
	err := s.api.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+s.options.Namespace+"/leases", nil, &leases)
	if err != nil {
		return err
	}
	for _, o := range leases.Items {
		if o.Metadata.UID == last.UID && earlier(o.Metadata.ResourceVersion, last.ResourceVersion) {
			return fmt.Errorf("%w: Lease %s has version %s, and had %s", errWentBack, last.Name,
				o.Metadata.ResourceVersion, last.ResourceVersion)
		}
	}
	return nil
}

// earlier compares versions of objects, which are integers that grow (Kubernetes API, resource versions).
func earlier(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	return errA == nil && errB == nil && a < b
}

// wentBack reports that the state is an earlier one, once for all watches.
func (s *Store) wentBack(err error) {
	if s.options.WentBack != nil {
		s.history.reported.Do(func() { s.options.WentBack(err) })
	}
}
