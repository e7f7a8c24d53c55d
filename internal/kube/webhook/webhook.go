// Package webhook serves admission webhooks of the API server of Kubernetes (admission.k8s.io/v1).
//
// A [Handler] reviews the requests of one path. [New] decodes requests, calls the handler, and encodes its response. A
// request is allowed only if its handler returned without an error: an error, a panic or an expired request is a denial
// with a message. A handler has no side effects, so a dry run is reviewed as any other request.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"time"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weft/resource"
)

const (
	// maxBody bounds an AdmissionReview, in bytes. The API server bounds a request to 3 MiB, and a review of an update
	// has the object twice.
	maxBody = 8 << 20
	// maxDepth bounds the nesting of an AdmissionReview. Objects of Kubernetes have less than 30 levels.
	maxDepth = 200
	// maxTimeout is the largest timeoutSeconds of a webhook, which the API server accepts.
	maxTimeout = 30 * time.Second
)

// Request is a request of the API server about one object. Object and OldObject have the JSON of the object as the API
// server sent it. Name is empty for a new object with generateName.
type Request = admission.AdmissionRequest

// Response is the response to an allowed request.
type Response struct {
	// Patch is a JSON patch (RFC 6902) of the object, for a mutating webhook; empty for no change.
	Patch []byte
	// Warnings are sentences that the API server returns to the client; kubectl prints them. The API server shortens a
	// warning after 256 characters.
	Warnings []string
}

// Handler reviews requests. It has no side effects, and returns the same response to the same request while the
// resources that it reads stay the same. It is called by several goroutines at a time.
//
// An error denies the request. The text of a [resource.Error], as one line, and its problems are sent to the client,
// with the HTTP status of its code. The text of another error is logged only.
type Handler func(context.Context, *Request) (Response, error)

// New returns a server of handlers by path. The context of a request ends after the time that the API server waits.
func New(handlers map[string]Handler, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	most := maxReviews()
	bodies, reviews := newPlaces(maxBodies, maxBodiesOfSource), newPlaces(most, most/2)
	for path, h := range handlers {
		mux.Handle("POST "+path, reviewer{path, h, log, bodies, reviews})
	}
	return mux
}

// reviewer serves one path.
type reviewer struct {
	path   string
	handle Handler
	log    *slog.Logger
	// bodies and reviews are the places of requests of all paths: of those in memory, and of those that are reviewed.
	bodies, reviews *places
}

// ServeHTTP implements http.Handler. A request that is not an AdmissionReview gets an error of HTTP, for which the API
// server applies the failurePolicy of the webhook.
func (r reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), timeoutOf(request))
	defer cancel()
	source := sourceOf(request)
	free, err := r.bodies.take(ctx, source)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer free()
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // not supported by a recorder of tests
	review, code, err := read(w, request)
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	_ = connection.SetReadDeadline(time.Time{}) // the review ends with ctx
	free, err = r.reviews.take(ctx, source)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer free()
	encoded, err := json.Marshal(admission.AdmissionReview{
		TypeMeta: review.TypeMeta, Response: r.review(ctx, review.Request),
	})
	if err != nil { // every part is a text, a number or a list of them
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encoded)
}

// read decodes the body. The returned code is that of the error.
func read(w http.ResponseWriter, request *http.Request) (*admission.AdmissionReview, int, error) {
	if media, _, err := mime.ParseMediaType(request.Header.Get("Content-Type")); err != nil ||
		media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("want Content-Type: application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", maxBody)
	case err != nil:
		return nil, http.StatusBadRequest, err
	}
	review, err := decode(body)
	return review, http.StatusBadRequest, err
}

func decode(body []byte) (*admission.AdmissionReview, error) {
	if depth(body) > maxDepth {
		return nil, fmt.Errorf("the body is nested deeper than %d levels", maxDepth)
	}
	var review admission.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("want an AdmissionReview: %w", err)
	}
	want := admission.SchemeGroupVersion.WithKind("AdmissionReview")
	switch {
	case review.GroupVersionKind() != want:
		return nil, fmt.Errorf("want apiVersion: %s, kind: %s", want.GroupVersion(), want.Kind)
	case review.Request == nil || review.Request.UID == "":
		return nil, errors.New("want request.uid")
	}
	clearNull(&review.Request.Object)
	clearNull(&review.Request.OldObject)
	return &review, nil
}

// clearNull makes an absent object empty. The API server writes null for the object of a deletion.
func clearNull(object *runtime.RawExtension) {
	if bytes.Equal(object.Raw, []byte("null")) {
		object.Raw = nil
	}
}

// depth returns how deeply a JSON document is nested. The result for another text has no meaning.
func depth(text []byte) int {
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++ // valid JSON has it in strings only
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return deepest
}

// timeoutOf returns the time for which the API server waits. The API server sends it in the query.
func timeoutOf(request *http.Request) time.Duration {
	if sent, err := time.ParseDuration(request.URL.Query().Get("timeout")); err == nil && sent > 0 {
		return min(sent, maxTimeout)
	}
	return maxTimeout
}

// review calls the handler.
func (r reviewer) review(ctx context.Context, request *Request) (response *admission.AdmissionResponse) {
	defer func() {
		if failure := recover(); failure != nil {
			r.log.Error("a webhook panicked", "path", r.path, "resource", request.Resource.Resource,
				"namespace", request.Namespace, "name", request.Name, "panic", failure, "stack", string(debug.Stack()))
			response = denied(request, internal)
		}
	}()
	allowed, err := r.handle(ctx, request)
	if err == nil {
		return allow(request, allowed)
	}
	if resource.CodeOf(err) == resource.Internal {
		r.log.Error("a webhook failed", "path", r.path, "resource", request.Resource.Resource,
			"namespace", request.Namespace, "name", request.Name, "error", err)
		err = internal
	}
	return denied(request, err)
}

// internal is the error of a failure whose text is not for users.
var internal = errors.New("the control plane failed to review this request; its log has the reason")

func allow(request *Request, allowed Response) *admission.AdmissionResponse {
	response := &admission.AdmissionResponse{UID: request.UID, Allowed: true}
	for _, warning := range allowed.Warnings {
		response.Warnings = append(response.Warnings, resource.OneLine(warning)) // a header
	}
	if len(allowed.Patch) > 0 {
		kind := admission.PatchTypeJSONPatch
		response.Patch, response.PatchType = allowed.Patch, &kind
	}
	return response
}

func denied(request *Request, err error) *admission.AdmissionResponse {
	status := &metav1.Status{Status: metav1.StatusFailure, Message: resource.Line(err)}
	var known *resource.Error
	code := resource.Internal
	if errors.As(err, &known) {
		code = known.Code
	}
	status.Reason, status.Code = reasonOf(code)
	if known != nil && len(known.Problems) > 0 {
		status.Details = &metav1.StatusDetails{
			Name: request.Name, Group: request.Kind.Group, Kind: request.Kind.Kind,
		}
		for _, p := range known.Problems {
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldValueInvalid, Field: p.Field, Message: p.Reason,
			})
		}
	}
	return &admission.AdmissionResponse{UID: request.UID, Result: status}
}

// reasonOf returns the API server's words for an error.
func reasonOf(code resource.Code) (metav1.StatusReason, int32) {
	switch code {
	case resource.Invalid:
		return metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	case resource.Unauthorized, resource.Forbidden:
		return metav1.StatusReasonForbidden, http.StatusForbidden
	case resource.NotFound:
		return metav1.StatusReasonNotFound, http.StatusNotFound
	case resource.Conflict, resource.Stale:
		return metav1.StatusReasonConflict, http.StatusConflict
	case resource.Unavailable:
		return metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable
	default:
		return metav1.StatusReasonInternalError, http.StatusInternalServerError
	}
}
