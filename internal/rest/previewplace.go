package rest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"weft/internal/access"
	"weft/resource"
)

const (
	// maxReaderPreviews is the number of previews of users who may not write that are computed concurrently, each of
	// another user. They are apart from those of writers, so that no reader delays a writer.
	maxReaderPreviews = 2
	// maxPreviewTime is less than the time within which a response must be written.
	maxPreviewTime = 50 * time.Second
)

// previewPlace bounds the previews that are computed concurrently.
type previewPlace struct {
	turns *userTurns
	slots chan struct{} // has an element for each preview
}

func newPreviewPlace(turns *userTurns, most int) *previewPlace {
	return &previewPlace{turns, make(chan struct{}, most)}
}

// enter waits until a preview of a user may be computed. The caller leaves when it is done.
func (p *previewPlace) enter(ctx context.Context, user string) (leave func(), err error) {
	release, err := p.turns.acquire(ctx, user)
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "another preview of the user %q takes long; try again later",
			user)
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots; release() }, nil
	case <-ctx.Done():
		release()
		return nil, resource.Errorf(resource.Unavailable, "%d previews of other users take long; try again later",
			cap(p.slots))
	}
}

// enterPreview waits for the place of a preview: that of writers, or that of readers. The caller leaves it at the end.
func (a *api) enterPreview(ctx context.Context, writers *previewPlace) (leave func(), err error) {
	user := access.UserOf(ctx)
	if a.Guard.isWriter(user) {
		return writers.enter(ctx, user.Name)
	}
	return a.readers.enter(ctx, user.Name)
}

// enterWrite waits for the place of a dry run of one write, where its caller may only preview it. A writer does not
// wait.
func (a *api) enterWrite(r *http.Request) (leave func(), err error) {
	user := access.UserOf(r.Context())
	if a.Guard.isWriter(user) {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxPreviewTime)
	defer cancel()
	return a.readers.enter(ctx, user.Name)
}

// isWriter reports whether a user may write resources of some kind in some mesh.
func (g *Guard) isWriter(user access.User) bool {
	for _, action := range []access.Action{access.Write, access.OperatorResources, access.AdminResources} {
		if g.Rules.Meshes(user, action).Permits(access.AnyMesh) {
			return true
		}
	}
	return false
}

// permitPreview returns an error where the caller may neither write a resource nor preview that. A kind that users do
// not write is left to admission, whose error says so.
func (g *Guard) permitPreview(r *http.Request, info *resource.Info, key resource.Key) error {
	denied := g.permitWrite(r, info, key)
	if denied == nil || g.permit(r, access.PreviewOf(info), access.WriteScope(key)) == nil {
		return nil
	}
	return denied
}

// userTurns lets each user have one preview at a time, so that the requests of one user never take the turns of all.
type userTurns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // by user; closed when the user is done
}

// acquire waits for the turn of a user. The caller releases it.
func (t *userTurns) acquire(ctx context.Context, user string) (release func(), err error) {
	for {
		t.mu.Lock()
		other, isBusy := t.busy[user]
		if !isBusy {
			done := make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[user] = done
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, user)
				close(done)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, resource.Errorf(resource.Unavailable, "another preview of the user %.253q takes long; try "+
				"again later", user)
		}
	}
}
