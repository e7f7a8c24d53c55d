package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admission "k8s.io/api/admission/v1"

	"weft/resource"
)

// post sends a review to a server with one handler at /h.
func post(t *testing.T, h Handler, contentType, body string) (code int, response string) {
	t.Helper()
	server := httptest.NewServer(New(map[string]Handler{"/h": h}, slog.New(slog.DiscardHandler)))
	defer server.Close()
	got, err := http.Post(server.URL+"/h?timeout=5s", contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1",
	"kind": {"group": "kuma.io", "version": "v1alpha1", "kind": "Mesh"}, "name": "default", "namespace": "ns",
	"operation": "DELETE", "object": null, "oldObject": {"a": 1, "unknown": {"b": [2]}}, "dryRun": true}}`

func reviewed(t *testing.T, h Handler) *admission.AdmissionResponse {
	t.Helper()
	code, text := post(t, h, "application/json; charset=utf-8", review)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	if _, again := post(t, h, "application/json", review); again != text {
		t.Errorf("two responses to one request:\n%s\n%s", text, again)
	}
	var got admission.AdmissionReview
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Response.UID != "u1" {
		t.Errorf("the response is %s", text)
	}
	return got.Response
}

func TestAllowedRequest(t *testing.T) {
	got := reviewed(t, func(_ context.Context, r *Request) (Response, error) {
		if r.Object.Raw != nil || string(r.OldObject.Raw) != `{"a": 1, "unknown": {"b": [2]}}` || !*r.DryRun {
			t.Errorf("the handler gets %s, %s", r.Object.Raw, r.OldObject.Raw)
		}
		return Response{Patch: []byte(`[]`), Warnings: []string{"w\nx"}}, nil
	})
	if !got.Allowed || string(got.Patch) != "[]" || *got.PatchType != "JSONPatch" || got.Warnings[0] != "w x" {
		t.Errorf("the response is %+v", got)
	}
	if got := reviewed(t, func(context.Context, *Request) (Response, error) {
		return Response{}, nil
	}); !got.Allowed || got.PatchType != nil {
		t.Errorf("the response without a patch is %+v", got)
	}
}

// TestFailedHandlerDenies: a handler that cannot review a request has not allowed it.
func TestFailedHandlerDenies(t *testing.T) {
	invalid := resource.Errorf(resource.Invalid, "the Mesh is invalid")
	invalid.Problems.Add("spec.mtls", "is wrong")
	for _, test := range []struct {
		name, message, reason string
		code                  int32
		handler               Handler
	}{
		{"panic", "its log has the reason", "InternalError", 500, func(context.Context, *Request) (Response, error) {
			panic("secret text")
		}},
		{"internal", "its log has the reason", "InternalError", 500, func(context.Context, *Request) (Response, error) {
			return Response{Patch: []byte("[]")}, errors.New("secret text")
		}},
		{"invalid", "spec.mtls: is wrong (the Mesh is invalid)", "Invalid", 422, func(context.Context, *Request) (
			Response, error,
		) {
			return Response{}, invalid
		}},
		{"forbidden", "not yours", "Forbidden", 403, func(context.Context, *Request) (Response, error) {
			return Response{}, resource.Errorf(resource.Forbidden, "not yours")
		}},
		{"unavailable", "later", "ServiceUnavailable", 503, func(context.Context, *Request) (Response, error) {
			return Response{}, resource.Errorf(resource.Unavailable, "later")
		}},
		{"timeout", "its log has the reason", "InternalError", 500, func(ctx context.Context, _ *Request) (
			Response, error,
		) {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("the context of a request has no deadline")
			}
			return Response{}, context.DeadlineExceeded
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := reviewed(t, test.handler)
			if got.Allowed || got.Patch != nil || got.Result.Code != test.code ||
				string(got.Result.Reason) != test.reason || !strings.Contains(got.Result.Message, test.message) {
				t.Errorf("the response is %+v, %+v", got, got.Result)
			}
			if strings.Contains(got.Result.Message, "secret") {
				t.Errorf("the user reads %q", got.Result.Message)
			}
			if test.name == "invalid" && (got.Result.Details.Causes[0].Field != "spec.mtls" ||
				got.Result.Details.Kind != "Mesh") {
				t.Errorf("the details are %+v", got.Result.Details)
			}
		})
	}
}

// TestMalformedReviews: a request that is not an AdmissionReview gets an error of HTTP, and reaches no handler.
func TestMalformedReviews(t *testing.T) {
	nested := strings.Replace(review, "null", strings.Repeat("[", 300)+strings.Repeat("]", 300), 1)
	quoted := strings.Replace(review, "null", `"`+strings.Repeat(`[\"`, 300)+`"`, 1)
	for _, test := range []struct {
		name, contentType, body, says string
		code                          int
	}{
		{"media type", "text/plain", review, "application/json", 415},
		{"text", "application/json", "{", "want an AdmissionReview", 400},
		{"trailing", "application/json", review + "{}", "want an AdmissionReview", 400},
		{"version", "application/json", strings.Replace(review, "/v1", "/v1beta1", 1), "admission.k8s.io/v1", 400},
		{"uid", "application/json", strings.Replace(review, "u1", "", 1), "request.uid", 400},
		{"empty", "application/json", "", "want an AdmissionReview", 400},
		{"nesting", "application/json", nested, "nested deeper than 200", 400},
		{"size", "application/json", review + strings.Repeat(" ", maxBody), "bytes", 413},
		{"brackets in a text", "application/json", quoted, "", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			called := false
			code, text := post(t, func(context.Context, *Request) (Response, error) {
				called = true
				return Response{}, nil
			}, test.contentType, test.body)
			if code != test.code || !strings.Contains(text, test.says) || called != (code == 200) {
				t.Errorf("the response is %d %s, want %d with %q", code, text, test.code, test.says)
			}
		})
	}
}

// FuzzDecode: no body makes the decoder panic, and a decoded review has a request.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(review))
	f.Add([]byte(`{"a": "\\"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := decode(body); err == nil && (got.Request == nil || bytes.Equal(got.Request.Object.Raw,
			[]byte("null"))) {
			t.Errorf("decoded %+v", got)
		}
	})
}
