package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

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
	if err := unknownParameters(r); err != nil {
		return err
	}
	if err := a.Guard.awaitTurn(w, r, 1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxPreviewTime)
	defer cancel()
	leave, err := a.enterPreview(ctx, a.dryRuns) // before the body is read, which bounds the memory of the bodies
	if err != nil {
		return err
	}
	defer leave()
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
	add := func(tried DiffResource, stored resource.Any) (err error) {
		result := DryRunResource{DiffResource: tried}
		if stored != nil {
			result.Resource, err = resource.MarshalJSON(hideKeys(stored, a.keysOf(ctx)), nil, kind.ByName(tried.Type),
				resource.Universal)
		}
		response.Resources = append(response.Resources, result)
		return err
	}
	err = a.try(r.WithContext(ctx), trial, request, true, a.Guard.permitPreview, add)
	if err != nil {
		return previewTimeout(ctx, err)
	}
	return writeJSON(w, http.StatusOK, response)
}

// previewTimeout returns err, or an error that says what to do where the time of the preview is over.
func previewTimeout(ctx context.Context, err error) error {
	if ctx.Err() != context.DeadlineExceeded {
		return err
	}
	return resource.Errorf(resource.Unavailable, "the preview of the change takes longer than %s; send it in parts",
		maxPreviewTime)
}

// permitTry returns an error where the caller may not try a write or a deletion of a resource.
type permitTry func(*http.Request, *resource.Info, resource.Key) error

// try makes the writes and deletions of a change in a trial, and passes the result of each to add: with the object as
// it would be stored, nil for a deletion. The error names every one that is rejected. With skipAbsent a deletion of a
// resource that does not exist is no error.
func (a *api) try(r *http.Request, trial *admission.Trial, request *DiffRequest, skipAbsent bool, permit permitTry,
	add func(DiffResource, resource.Any) error) error {
	rejected := rejections{meshes: map[string]bool{}}
	for i, document := range request.Apply {
		if err := r.Context().Err(); err != nil {
			return err // the request has ended
		}
		tried, stored, err := a.tryPut(r, trial, document, permit)
		if err == nil {
			err = add(tried, stored)
		}
		if err = rejected.collect("apply", i, tried.ResourceName, err); err != nil {
			return err
		}
	}
	for i, name := range request.Delete {
		warnings, err := a.tryDelete(r, trial, name, permit)
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
