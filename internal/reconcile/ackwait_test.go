package reconcile

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

// slow is a mesh whose proxies ack when the test tells them to.
type slow struct{ acked chan struct{} }

func (s slow) WaitAcked(ctx context.Context, _ string, _ bool, _ []resource.Key, _ func([]graph.ProxyKey)) error {
	select {
	case <-s.acked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// versioned accepts a write of the newest version of a row only.
type versioned struct {
	sink
	*world
}

func (v versioned) Put(ctx context.Context, o resource.Any) (string, error) {
	before, ok := v.plan.State.Find(v.reader(), o.Key())
	if ok && before.Envelope().Version != o.Envelope().Version {
		return "", ErrConflict
	}
	return v.sink.Put(ctx, o)
}

// Certificates may be renewed more often than all proxies need to ack a next SPIFFE ID.
func TestARenewedCertificateDoesNotEndTheWaitForANextIdentity(t *testing.T) {
	row := func(until time.Duration, next string) *resource.Object[kind.DataplaneCertificates] {
		ids := kind.SpiffeIDsOf("spiffe://default/web")
		return kind.DataplaneCertificatesList.Make("default", "web-1", kind.DataplaneCertificates{
			Certificates: []kind.WorkloadCertificate{{SpiffeIDs: ids, MeshIdentity: "identity", Root: "root",
				Until: kind.Time{Time: time.Unix(0, 0).Add(until)}}},
			Next: &kind.NextIdentity{SpiffeIDs: kind.SpiffeIDsOf(next), MeshIdentity: "identity",
				Since: kind.Time{Time: time.Unix(7, 0)}},
		})
	}
	for what, c := range map[string]struct {
		meanwhile *resource.Object[kind.DataplaneCertificates]
		accepted  bool
	}{
		"its certificate is renewed":        {row(2*time.Hour, "spiffe://default/next"), true},
		"another SPIFFE ID is to come next": {row(time.Hour, "spiffe://default/other"), false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "241.0.0.0/8")
				announced := row(time.Hour, "spiffe://default/next")
				w.put(announced)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				mesh, written := slow{make(chan struct{})}, make(chan resource.Any, 1)
				rc := New(w.plan, versioned{sink{written}, w}, mesh, w.commit, slog.New(slog.DiscardHandler))
				rc.startAckWait(ctx, Request{Kind: NextIdentitiesKind, Mesh: "default"},
					w.plan.identityAckWait(w.reader(), "default",
						slices.Clone([]*resource.Object[kind.DataplaneCertificates]{announced})))
				synctest.Wait()
				w.put(c.meanwhile)
				mesh.acked <- struct{}{}
				synctest.Wait()
				select {
				case o := <-written:
					got := o.(*resource.Object[kind.DataplaneCertificates]).Spec
					if !c.accepted || !got.Next.Accepted ||
						!got.Certificates[0].Until.Equal(c.meanwhile.Spec.Certificates[0].Until.Time) {
						t.Errorf("%+v is written", got)
					}
				default:
					if c.accepted {
						t.Error("the next identity is not accepted, though every proxy has acked it")
					}
				}
			})
		})
	}
}
