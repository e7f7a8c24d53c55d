package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outage logs the failures of the lists and watches of one API server, which its clients share. While the API server
// does not respond, that is one warning, however many of them fail and however often they are tried. A call that the
// API server rejects is a warning of its own, until it succeeds. A nil Outage logs nothing.
type Outage struct {
	log      *slog.Logger
	mu       sync.Mutex
	down     int // calls that have got no response since they last succeeded
	rejected map[*Call]Rejection
}

// NewOutage returns an Outage of an API server that responds.
func NewOutage(log *slog.Logger) *Outage { return &Outage{log: log, rejected: map[*Call]Rejection{}} }

// Rejection is a call that the API server rejects each time.
type Rejection struct {
	Since  time.Time
	What   string // the call and what waits for it, as in the log
	Reason string
}

// Rejections returns the calls that the API server rejects now.
func (o *Outage) Rejections() []Rejection {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Rejection
	for _, r := range o.rejected {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(a.What, b.What), a.Since.Compare(b.Since))
	})
	return all
}

// Call is one call that is tried again until it succeeds, such as a watch. One goroutine at a time uses it.
type Call struct {
	outage         *Outage
	down, rejected bool
}

// Call returns a call that has not failed.
func (o *Outage) Call() *Call { return &Call{outage: o} }

// NoteFailure logs a failure unless that was done since the last success. message and attributes say what waits for the
// call, where the API server rejects it.
func (c *Call) NoteFailure(err error, message string, attributes ...any) {
	o := c.outage
	if o == nil {
		return
	}
	if responded(err) {
		c.NoteResponse()
		c.noteRejection(err, message, attributes)
		return
	}
	if c.down {
		return
	}
	c.down = true
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down++; o.down == 1 {
		o.log.Warn("the API server of Kubernetes does not respond; resources and proxies stay as they are",
			"error", err)
	}
}

// noteRejection logs that the API server rejects the call, once.
func (c *Call) noteRejection(err error, message string, attributes []any) {
	if c.rejected {
		return
	}
	c.rejected = true
	o := c.outage
	o.log.Warn(message, append(attributes, "error", err)...)
	for i := 1; i < len(attributes); i += 2 {
		message += fmt.Sprintf(" (%v)", attributes[i])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rejected[c] = Rejection{Since: time.Now(), What: message, Reason: err.Error()}
}

// NoteSuccess ends the failure of the call.
func (c *Call) NoteSuccess() {
	if c.rejected {
		c.rejected = false
		c.outage.mu.Lock()
		delete(c.outage.rejected, c)
		c.outage.mu.Unlock()
	}
	c.NoteResponse()
}

// NoteResponse ends the outage for the call, which may be rejected still.
func (c *Call) NoteResponse() {
	if !c.down {
		return
	}
	c.down = false
	o := c.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down--; o.down == 0 {
		o.log.Info("the API server of Kubernetes responds again")
	}
}

// responded reports whether an error is what an API server responded that works. One that stops, or whose etcd is down,
// responds with 429 or 5xx.
func responded(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code != 0 && code < 500 && code != 429
}
