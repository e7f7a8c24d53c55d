package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// Bounds of a request for a dry run of several writes. A longer change is sent in parts.
const (
	MaxDryRunBytes = 32 << 20
	MaxDryRunItems = 10_000
	// maxDryRuns is the number of dry runs that are computed concurrently, each of another user. Further requests wait.
	maxDryRuns = 2
	// dryRunsAWrite is the number of checked resources that count as one write of a user.
	dryRunsAWrite = 10
	// maxDryRunTime is less than the time within which a response must be written.
	maxDryRunTime = 50 * time.Second
)

// DryRunResponse has the result that each write and deletion of a change would have, in the order of the request.
type DryRunResponse struct {
	Resources []DryRunResource `json:"resources"`
}

// DryRunResource is the result that a write or a deletion would have. The outcome of a deletion of a resource that does
// not exist is "absent".
type DryRunResource struct {
	DiffResource
	// Resource is the resource as it would be stored, in the Universal form; absent for a deletion.
	Resource json.RawMessage `json:"resource,omitempty"`
}

// dryRun checks the writes and deletions of a change, each as if those before it were stored, and stores nothing. The
// error names every one that would be rejected.
func (a *api) dryRun(w http.ResponseWriter, r *http.Request) error {
	if err := a.permitAnyWrite(r); err != nil {
		return err
	}
	if err := unknownParameters(r); err != nil {
		return err
	}
	if err := a.Guard.awaitTurn(w, r, 1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxDryRunTime)
	defer cancel()
	release, err := a.turns.acquire(ctx, access.UserOf(ctx).Name)
	if err != nil {
		return dryRunTimeout(ctx, err)
	}
	defer release()
	select { // before the body is read, which bounds the memory of the bodies
	case a.dryRuns <- struct{}{}:
		defer func() { <-a.dryRuns }()
	case <-ctx.Done():
		return dryRunTimeout(ctx, resource.Errorf(resource.Unavailable, "%d dry runs take long; try again later",
			maxDryRuns))
	}
	request, err := readChange(w, r, MaxDryRunBytes)
	if err != nil {
		return err
	}
	if n := len(request.Apply) + len(request.Delete); n > MaxDryRunItems || n == 0 {
		return resource.Errorf(resource.Invalid, "the request has %d resources, want 1 to %d: send more in parts", n,
			MaxDryRunItems)
	}
	if err := a.Guard.awaitTurn(w, r, (len(request.Apply)+len(request.Delete))/dryRunsAWrite); err != nil {
		return err
	}
	trial := a.Writer.Trial()
	response := DryRunResponse{Resources: []DryRunResource{}}
	err = a.try(r.WithContext(ctx), trial, request, true, func(tried DiffResource, stored resource.Any) error {
		result := DryRunResource{DiffResource: tried}
		if stored != nil {
			if a.hidesKeys(ctx) {
				stored = kind.HidePrivateKeys(stored)
			}
			var err error
			result.Resource, err = resource.MarshalJSON(stored, nil, kind.ByName(tried.Type), resource.Universal)
			if err != nil {
				return err
			}
		}
		response.Resources = append(response.Resources, result)
		return nil
	})
	if err != nil {
		return dryRunTimeout(ctx, err)
	}
	return writeJSON(w, http.StatusOK, response)
}

// userTurns lets each user have one diff or dry run at a time, so that the requests of one user never take the turns of
// all.
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
			return nil, ctx.Err()
		}
	}
}

// dryRunTimeout returns err, or an error that says what to do where the time of the dry run is over.
func dryRunTimeout(ctx context.Context, err error) error {
	if ctx.Err() != context.DeadlineExceeded {
		return err
	}
	return resource.Errorf(resource.Unavailable, "the check of the change takes longer than %s; send it in parts",
		maxDryRunTime)
}

// permitAnyWrite returns an error where the caller may write resources of no kind.
func (a *api) permitAnyWrite(r *http.Request) (err error) {
	for _, action := range []access.Action{access.Write, access.OperatorResources, access.AdminResources} {
		if denied := a.Guard.permit(r, action); denied == nil {
			return nil
		} else if err == nil {
			err = denied
		}
	}
	return err
}

// try makes the writes and deletions of a change in a trial, and passes the result of each to add: with the object as
// it would be stored, nil for a deletion. The error names every one that is rejected. With skipAbsent a deletion of a
// resource that does not exist is no error.
func (a *api) try(r *http.Request, trial *admission.Trial, request *DiffRequest, skipAbsent bool,
	add func(DiffResource, resource.Any) error) error {
	rejected := rejections{meshes: map[string]bool{}}
	for i, document := range request.Apply {
		tried, stored, err := a.tryPut(r, trial, document)
		if err == nil {
			err = add(tried, stored)
		}
		if err = rejected.collect("apply", i, tried.ResourceName, err); err != nil {
			return err
		}
	}
	for i, name := range request.Delete {
		warnings, err := a.tryDelete(r, trial, name)
		outcome := "deleted"
		if skipAbsent && resource.CodeOf(err) == resource.NotFound {
			outcome, err = "absent", nil
		}
		if err == nil {
			err = add(DiffResource{name, outcome, append([]string{}, warnings...)}, nil)
		}
		if err = rejected.collect("delete", i, name, err); err != nil {
			return err
		}
	}
	return rejected.err()
}

// readChange reads a change from a request's body, which has a number of bytes at most.
func readChange(w http.ResponseWriter, r *http.Request, most int) (*DiffRequest, error) {
	body, err := readBody(w, r, most)
	if err != nil {
		return nil, err
	}
	var request DiffRequest
	err = decodeRequest(body, &request, "the request",
		`{"apply": [RESOURCE], "delete": [{"type": "MeshTimeout", "mesh": "default", "name": "web"}]}`)
	return &request, err
}

// rejections are the problems of a change.
type rejections struct {
	problems resource.Problems
	denied   bool
	meshes   map[string]bool // names of the rejected Meshes
}

// collect adds the problems of an error that the user can correct, and returns any other one.
func (c *rejections) collect(list string, i int, of ResourceName, err error) error {
	at := fmt.Sprintf("%s[%d]", list, i)
	rejected, ok := err.(*resource.Error)
	switch {
	case err == nil:
		return nil
	case !ok, slices.Contains([]resource.Code{resource.Unavailable, resource.Unauthorized, resource.Internal},
		rejected.Code):
		return err
	case rejected.Code == resource.NotFound && c.meshes[of.Mesh]:
		c.problems.Add(at, "it is checked once the Mesh %s, which is rejected, is correct", of.Mesh)
		return nil
	}
	c.denied = c.denied || rejected.Code == resource.Forbidden
	if of.Type == kind.Meshes.Name {
		c.meshes[of.Name] = true
	}
	if len(rejected.Problems) == 0 {
		c.problems.Add(at, "%s", rejected.Detail)
	}
	for _, problem := range rejected.Problems {
		c.problems.Add(at+"."+problem.Field, "%s", problem.Reason)
	}
	return nil
}

// err returns the error of all problems, nil where there are none.
func (c *rejections) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	failed := &resource.Error{Code: resource.Invalid, Detail: "the change would be rejected",
		Problems: c.problems}
	if c.denied {
		failed.Code = resource.Forbidden
	}
	return failed
}
