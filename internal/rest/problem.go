package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"weft/internal/store"
	"weft/resource"
)

// problem is an error response of the API. (RFC 9457, Problem Details for HTTP APIs.)
type problem struct {
	Type   string `json:"type"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	// InvalidParameters are the invalid fields.
	InvalidParameters resource.Problems `json:"invalid_parameters,omitempty"`
}

var statusOf = map[resource.Code]int{
	resource.Invalid:      http.StatusBadRequest,
	resource.Unauthorized: http.StatusUnauthorized,
	resource.Forbidden:    http.StatusForbidden,
	resource.NotFound:     http.StatusNotFound,
	resource.Conflict:     http.StatusConflict,
	resource.Stale:        http.StatusPreconditionFailed,
	resource.Unavailable:  http.StatusServiceUnavailable,
}

// fail sends an error. The text of an error without a code is logged and not sent.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	var known *resource.Error
	switch {
	case errors.As(err, &tooLarge):
		writeProblem(w, problem{Status: http.StatusRequestEntityTooLarge, Detail: tooLargeText(r, tooLarge.Limit)})
	case errors.As(err, &known) && statusOf[known.Code] != 0:
		if known.Cause != nil {
			a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "detail", known.Detail, "cause",
				known.Cause)
		}
		writeProblem(w, problem{Status: statusOf[known.Code], Detail: known.Detail, InvalidParameters: known.Problems})
	case errors.Is(err, store.ErrUnavailable):
		a.Log.Error("store unavailable", "method", r.Method, "path", r.URL.Path, "error", err)
		writeProblem(w,
			problem{Status: http.StatusServiceUnavailable,
				Detail: store.Why(err) + "; try again later, the control plane's log has more"})
	case errors.Is(err, context.Canceled):
		// The client is gone: no response is sent.
	default:
		a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		writeProblem(w,
			problem{Status: http.StatusInternalServerError,
				Detail: "an error of the control plane; its log says which"})
	}
}

// tooLargeText states the limit of a body and, if the request has it, the body's size.
func tooLargeText(r *http.Request, limit int64) string {
	if r.ContentLength > limit {
		return fmt.Sprintf("the body has %d bytes, at most %d are read at this path", r.ContentLength, limit)
	}
	return fmt.Sprintf("the body has more than %d bytes, which is all that is read at this path", limit)
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	_ = writeBody(w, p.Status, p) // a problem always encodes
}
