package api_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"weft/internal/kube/api"
)

// TestOutage: the failures of many calls while the API server is down are one line in the log, and its return another.
// Each call that it rejects is a line of its own.
func TestOutage(t *testing.T) {
	var log bytes.Buffer
	o := api.NewOutage(slog.New(slog.NewTextHandler(&log, nil)))
	a, b := o.Call(), o.Call()
	silent := errors.New("connection refused")
	stops := apierrors.NewServiceUnavailable("it stops")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role"))
	lines := func(want ...string) {
		t.Helper()
		got := log.String()
		log.Reset()
		if n := strings.Count(got, "\n"); n != len(want) {
			t.Fatalf("the log has %q, want %q", got, want)
		}
		for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
			if len(want) > 0 && !strings.Contains(line, want[i]) {
				t.Fatalf("the log has %q, want %q", got, want)
			}
		}
	}
	a.NoteFailure(silent, "a waits")
	b.NoteFailure(stops, "b waits")
	a.NoteFailure(silent, "a waits")
	lines("does not respond")
	a.NoteSuccess()
	lines()
	b.NoteSuccess()
	lines("responds again")
	b.NoteFailure(stops, "b waits")
	lines("does not respond")
	b.NoteSuccess()
	lines("responds again")
	a.NoteFailure(silent, "a waits")
	lines("does not respond")
	a.NoteFailure(forbidden, "a waits")
	lines("responds again", "a waits")
	a.NoteSuccess()
	a.NoteFailure(forbidden, "a waits")
	b.NoteFailure(forbidden, "b waits", "path", "/pods")
	a.NoteFailure(forbidden, "a waits")
	lines("a waits", "b waits")
	a.NoteSuccess()
	a.NoteFailure(forbidden, "a waits")
	lines("a waits")
}

func TestRejectionsOfCalls(t *testing.T) {
	o := api.NewOutage(slog.New(slog.DiscardHandler))
	a, b := o.Call(), o.Call()
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range o.Rejections() {
			if got = append(got, r.What+": "+r.Reason); r.Since.IsZero() {
				t.Errorf("%+v has no start", r)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role"))
	a.NoteFailure(errors.New("connection refused"), "a waits")
	expect("without a response")
	b.NoteFailure(forbidden, "b waits", "path", "/pods")
	a.NoteFailure(forbidden, "a waits")
	expect("two rejections", "a waits: "+forbidden.Error(), "b waits (/pods): "+forbidden.Error())
	a.NoteSuccess()
	expect("one succeeds", "b waits (/pods): "+forbidden.Error())
	b.NoteFailure(errors.New("connection refused"), "b waits", "path", "/pods")
	b.NoteSuccess()
	expect("both succeed")
}
