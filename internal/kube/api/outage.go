package api

import (
	"errors"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outage logs the failures of the lists and watches of one API server, which its clients share. While the API server
// does not respond, that is one warning, however many of them fail and however often they are tried. A call that the
// API server rejects is a warning of its own, until it succeeds. A nil Outage logs nothing.
type Outage struct {
	log  *slog.Logger
	mu   sync.Mutex
	down int // calls that have got no response since they last succeeded
}

// NewOutage returns an Outage of an API server that responds.
func NewOutage(log *slog.Logger) *Outage { return &Outage{log: log} }

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
		if !c.rejected {
			o.log.Warn(message, append(attributes, "error", err)...)
		}
		c.rejected = true
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

// NoteSuccess ends the failure of the call.
func (c *Call) NoteSuccess() {
	c.rejected = false
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
