// Package audit writes the audit log: the caller of each change, its address, the action, the object before and after
// it, and the status of the response, as lines of JSON.
//
// An entry contains no value of a secret and no token. It is written before its request is finished. While entries
// can't be written, audited requests are rejected. Registrations of agents continue, and their entries are written
// later.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weft/internal/access"
	"weft/resource"
)

// Entry is one line. What does not apply is left out.
type Entry struct {
	Time     time.Time     `json:"time"`
	Instance string        `json:"instance"` // of the control plane
	User     access.User   `json:"user"`
	From     string        `json:"from"`    // the peer's address; the headers of a forwarding proxy are not trusted
	Request  string        `json:"request"` // "PUT /meshes/default", or "Register" of an agent
	Action   access.Action `json:"action,omitempty"`
	Note     string        `json:"note,omitempty"` // of the user, the reason of the request

	Resource      *Resource       `json:"resource,omitempty"` // the changed resource
	VersionBefore string          `json:"versionBefore,omitempty"`
	VersionAfter  string          `json:"versionAfter,omitempty"`
	Before        json.RawMessage `json:"before,omitempty"` // in the Universal form, secrets masked
	After         json.RawMessage `json:"after,omitempty"`

	Token *Token `json:"token,omitempty"` // that was issued

	Status int    `json:"status"` // as HTTP has it
	Error  string `json:"error,omitempty"`
}

// Resource names a resource.
type Resource struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
}

// Token identifies an issued token: its claims, and the ID under which it can be revoked.
type Token struct {
	Kind   string `json:"kind"` // "user-token"
	Claims any    `json:"claims"`
}

// mostPending bounds the entries that wait for a disk.
const mostPending = 1000

// Log writes entries. Its methods may be called concurrently.
type Log struct {
	instance string
	out      io.Writer // nil: nothing is kept
	now      func() time.Time
	log      *slog.Logger

	mu      sync.Mutex
	pending [][]byte // that could not be written yet
	failure Failure
}

// Failure is a time in which entries can't be written.
type Failure struct {
	Since  time.Time // zero: they can
	Reason string    // for users: without the place of the log
}

// New returns the log of an instance. A nil writer discards entries; one that fails is tried again.
func New(out io.Writer, instance string, now func() time.Time, log *slog.Logger) *Log {
	return &Log{instance: instance, out: out, now: now, log: log}
}

// Begin returns the record of an action that has not begun. If entries can't be written the error is Unavailable, and
// the action must not begin. A nil record is valid, and discards everything.
func (l *Log) Begin(user access.User, from, request string, action access.Action) (*Record, error) {
	if l.out == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.flush(); err != nil {
		return nil, &resource.Error{
			Code: resource.Unavailable, Cause: err,
			Detail: "the audit log cannot be written, so actions that it must record are rejected; the control " +
				"plane's log has the reason, and KUMA_AUDIT_OUTPUT the place of the audit log",
		}
	}
	return l.Record(user, from, request, action), nil
}

// Record returns the record of an action that happens even if entries can't be written.
func (l *Log) Record(user access.User, from, request string, action access.Action) *Record {
	if l.out == nil {
		return nil
	}
	return &Record{log: l, entry: Entry{
		Time: l.now().UTC(), Instance: l.instance, User: user, From: from, Request: request, Action: action,
	}}
}

// flush writes the pending entries.
func (l *Log) flush() error {
	for len(l.pending) > 0 {
		if _, err := l.out.Write(l.pending[0]); err != nil {
			l.noteFailure(err)
			return err
		}
		l.pending = l.pending[1:]
	}
	l.failure = Failure{}
	return nil
}

func (l *Log) noteFailure(err error) {
	if l.failure.Since.IsZero() {
		l.failure.Since = l.now()
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	l.failure.Reason = err.Error()
}

// Failure tries to write the pending entries, and returns the time since which that fails. Audited requests are
// rejected meanwhile.
func (l *Log) Failure() Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.flush() // it is the failure that is returned
	return l.failure
}

func (l *Log) write(e *Entry) {
	line, err := json.Marshal(e)
	if err != nil {
		l.log.Error("an audit entry can't be encoded", "request", e.Request, "user", e.User.Name, "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) < mostPending {
		l.pending = append(l.pending, append(line, '\n'))
		err = l.flush()
	}
	if err != nil {
		l.log.Error("an audit entry can't be written, and waits", "request", e.Request, "user", e.User.Name, "from",
			e.From,
			"status", e.Status, "waiting", len(l.pending), "error", err)
	}
}

// Record is an unfinished entry. Its methods may be called on nil.
type Record struct {
	log   *Log
	entry Entry
}

// SetChange sets the object before and after a write; nil if it does not exist.
func (r *Record) SetChange(before, after resource.Any) {
	if r == nil {
		return
	}
	e := &r.entry
	was, versionBefore, bodyBefore := r.log.masked(before)
	is, versionAfter, bodyAfter := r.log.masked(after)
	e.Resource = cmp.Or(is, was)
	e.VersionBefore, e.Before, e.VersionAfter, e.After = versionBefore, bodyBefore, versionAfter, bodyAfter
}

// SetNote sets the note of the request; empty: it has none.
func (r *Record) SetNote(note string) {
	if r != nil {
		r.entry.Note = note
	}
}

// SetToken notes a token.
func (r *Record) SetToken(kind string, claims any) {
	if r != nil {
		r.entry.Token = &Token{kind, claims}
	}
}

// End writes the entry, with the HTTP status of the answer and the error, nil for none. One whose text no user
// is shown is not in the entry either.
func (r *Record) End(status int, err error) {
	if r == nil {
		return
	}
	r.entry.Status = cmp.Or(status, http.StatusOK)
	var shown *resource.Error
	if errors.As(err, &shown) {
		r.entry.Error = shown.Error()
	}
	r.log.write(&r.entry)
}

type recordKey struct{}

// WithRecord returns a context that carries a record to the code that completes it.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// FromContext returns the context's record; nil if there is none.
func FromContext(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}
