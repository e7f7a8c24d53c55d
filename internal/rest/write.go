package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/rest/kumactl"
	"weft/kind"
	"weft/resource"
)

// Maximum sizes of requests. The maximum of a resource's body is that of its kind ([resource.Info.Bytes]).
const (
	maxRequest = 64 << 10 // bytes of a body without a resource
	maxQuery   = 16 << 10 // bytes of a query, before it is parsed
	maxFilters = 32       // parameters of a list, names and values
)

// readBody reads a request's body. It reads nothing where Content-Length exceeds the maximum.
func readBody(w http.ResponseWriter, r *http.Request, most int) ([]byte, error) {
	if r.ContentLength > int64(most) {
		return nil, &http.MaxBytesError{Limit: int64(most)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	if err != nil {
		return nil, bodyError(err)
	}
	return body, nil
}

// put writes a resource in either form. The status is 201 for a new resource, else 200.
func (a *api) put(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := a.Guard.awaitTurn(w, r, 1); err != nil {
			return err
		}
		leave, err := a.enterWrite(r)
		if err != nil {
			return err
		}
		defer leave()
		change, err := changeOf(r)
		if err != nil {
			return err
		}
		if err := kumactl.CheckRelease(r); err != nil {
			return err
		}
		change.Sender = kumactl.SenderOf(r, d.Describe().Name)
		scope := access.WriteScope(keyOf(d, r))
		change.Administers = a.allows(r, access.AdminResources, scope)
		change.Vouches = a.allows(r, access.OperatorResources, scope)
		body, err := readBody(w, r, d.Describe().Bytes())
		if err != nil {
			return err
		}
		written, err := kind.Parse(body)
		if err != nil {
			return err
		}
		if err := place(written.Object, keyOf(d, r)); err != nil {
			return err
		}
		result, err := a.Writer.Put(r.Context(), written.Object, change)
		if err != nil {
			return err
		}
		result.Warnings = slices.Concat(result.Warnings, otherKRI(written.KRI, result.Object, d),
			kumactl.WarnWidened(&change.Sender, &result, d))
		if change.DryRun {
			result.Object = hideKeys(result.Object, a.keysOf(r.Context()))
			return writePreview(w, d, result)
		}
		return writeResult(w, result)
	}
}

// allows returns the check of a write that needs a further action.
func (a *api) allows(r *http.Request, action access.Action, scope access.Scope) func(context.Context) error {
	return func(context.Context) error { return a.Guard.permit(r, action, scope) }
}

// PutResponse is the response to a PUT.
type PutResponse struct {
	Changed  bool     `json:"changed"`  // false where the stored resource is equal
	Warnings []string `json:"warnings"` // sentences about valid input with a possibly surprising effect
}

func writeResult(w http.ResponseWriter, result admission.Result) error {
	status := http.StatusOK
	if result.Created {
		status = http.StatusCreated
	}
	w.Header().Set("ETag", strconv.Quote(result.Object.Envelope().Version))
	return writeJSON(w, status, PutResponse{result.Changed, append([]string{}, result.Warnings...)})
}

// Preview is the response to a PUT that is a dry run.
type Preview struct {
	Created  bool            `json:"created"`
	Changed  bool            `json:"changed"`
	Warnings []string        `json:"warnings"`
	Resource json.RawMessage `json:"resource"` // as it would be stored, in the Universal form
}

func writePreview(w http.ResponseWriter, d resource.Descriptor, result admission.Result) error {
	body, err := resource.MarshalJSON(result.Object, nil, d, resource.Universal)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, Preview{result.Created, result.Changed, append([]string{}, result.Warnings...),
		body})
}

// delete deletes a resource.
func (a *api) delete(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := a.Guard.awaitTurn(w, r, 1); err != nil {
			return err
		}
		leave, err := a.enterWrite(r)
		if err != nil {
			return err
		}
		defer leave()
		change, err := changeOf(r)
		if err != nil {
			return err
		}
		key, err := a.deletedKey(r, d)
		if err != nil {
			return err
		}
		warnings := a.Writer.DeletionWarnings(r.Context(), key)
		if err := a.Writer.Delete(r.Context(), key, change); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, DeleteResponse{warnings})
	}
}

// deletedKey returns the key of the resource that a request deletes. On global it is found as [snapshot.requested]
// finds it, so that the deletion of a zone's object is rejected with the zone. One that does not exist has the key of
// the path.
func (a *api) deletedKey(r *http.Request, d resource.Descriptor) (resource.Key, error) {
	m, err := a.read(r.Context(), kind.Zones, d)
	if err != nil {
		return resource.Key{}, err
	}
	o, err := m.requested(r, d)
	switch {
	case err == nil:
		return o.Key(), nil
	case resource.CodeOf(err) == resource.NotFound && r.URL.Query().Get(zoneParameter) == "":
		return keyOf(d, r), nil
	}
	return resource.Key{}, err
}

// DeleteResponse is the response to a DELETE.
type DeleteResponse struct {
	Warnings []string `json:"warnings,omitempty"` // sentences about a deletion that is undone
}

// place sets the key of a parsed resource to that of the path. A field of the body that contradicts the path is an
// error.
func place(o resource.Any, key resource.Key) error {
	var problems resource.Problems
	meta := o.Envelope()
	if said := o.Key().Kind; said != key.Kind {
		problems.Add("type", "is %q, but the path is that of a %s", said, key.Kind)
	}
	if meta.Mesh != "" && meta.Mesh != key.Mesh {
		problems.Add("mesh", "is %q, but the path says %q", meta.Mesh, key.Mesh)
	}
	if meta.Name != "" && meta.Name != key.Name {
		problems.Add("name", "is %q, but the path says %q", meta.Name, key.Name)
	}
	if len(problems) > 0 {
		return &resource.Error{Code: resource.Invalid, Detail: "the body and the path do not agree", Problems: problems}
	}
	meta.Mesh, meta.Name = key.Mesh, key.Name
	return nil
}

// changeOf returns the precondition of a write, from the header If-Match, and whether it is a dry run.
func changeOf(r *http.Request) (admission.Change, error) {
	version, err := ifMatch(r)
	if err != nil {
		return admission.Change{}, err
	}
	dryRun, err := parseDryRun(r)
	return admission.Change{IfMatch: version, OnChange: audit.FromContext(r.Context()).SetChange, DryRun: dryRun}, err
}

// parseDryRun returns whether the query asks for a dry run (`dryRun` or `dry_run`).
func parseDryRun(r *http.Request) (isDryRun bool, err error) {
	values := r.URL.Query()
	for _, name := range []string{"dryRun", "dry_run"} {
		if !values.Has(name) {
			continue
		}
		value, err := strconv.ParseBool(values.Get(name))
		if err != nil {
			return false, invalidQuery(resource.Problem{Field: name,
				Reason: strconv.Quote(values.Get(name)) + " is neither true nor false"})
		}
		isDryRun = isDryRun || value
	}
	return isDryRun, nil
}

// isDryRun reports whether a request is the dry run of a write.
func isDryRun(r *http.Request) bool {
	dryRun, err := parseDryRun(r)
	return err == nil && dryRun && (r.Method == http.MethodPut || r.Method == http.MethodDelete)
}

// ifMatch returns the version that a write requires, or an empty string for any.
func ifMatch(r *http.Request) (string, error) {
	value := r.Header.Get("If-Match")
	if value == "" {
		return "", nil
	}
	version, err := strconv.Unquote(value)
	if err != nil || !strings.HasPrefix(value, `"`) || version == "" {
		return "", resource.Errorf(resource.Invalid, "If-Match is %s, want one ETag of this API with its quotes", value)
	}
	return version, nil
}

// bodyError returns the error of a body that could not be read.
func bodyError(err error) error {
	if tooLarge, ok := err.(*http.MaxBytesError); ok {
		return tooLarge
	}
	return resource.Errorf(resource.Invalid, "the request's body could not be read to its end")
}
