// Package events sends events about objects to an API server of Kubernetes.
package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
)

// waiting is how many events wait at most. Further ones are dropped: an event is a hint for the owner of an object, and
// the API server's work for resources goes first.
const waiting = 1000

// maxMessage is how long a message may be. (Kubernetes API, core/v1 Event.)
const maxMessage = 1024

// Recorder sends events, one after the other.
type Recorder struct {
	client *api.Client
	log    *slog.Logger
	queue  chan convert.Event
}

// New returns a recorder. Events are sent while it runs.
func New(client *api.Client, log *slog.Logger) *Recorder {
	return &Recorder{client: client, log: log, queue: make(chan convert.Event, waiting)}
}

// Record has an event sent. It does not wait.
func (r *Recorder) Record(e convert.Event) {
	select {
	case r.queue <- e:
	default:
		r.log.Debug("an event is dropped, since too many wait", "event", e)
	}
}

// Run sends events until ctx ends. An event that the API server has, or does not accept, is not sent again.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case e := <-r.queue:
			path := "/api/v1/namespaces/" + e.On.Namespace + "/events"
			err := r.client.Create(ctx, path, object(e, time.Now()), nil)
			if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				r.log.Debug("an event was not stored", "event", e, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// object returns the event as the API server has it. Its name follows from its content, so that the same event of
// several replicas, or after a restart, is one.
func object(e convert.Event, now time.Time) map[string]any {
	level := "Normal"
	if e.Warning {
		level = "Warning"
	}
	e.Message = strings.Join(strings.Fields(e.Message), " ") // kubectl cuts it at its first line break
	if len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "")
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{e.On.Kind, e.On.UID, e.Reason, e.Message}, "\x00")))
	at := now.UTC().Format(time.RFC3339)
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{
			"name":      e.On.Name[:min(len(e.On.Name), 200)] + "." + hex.EncodeToString(sum[:8]),
			"namespace": e.On.Namespace,
		},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": e.On.Kind, "namespace": e.On.Namespace,
			"name": e.On.Name, "uid": e.On.UID},
		"type": level, "reason": e.Reason, "message": e.Message, "count": 1, "firstTimestamp": at, "lastTimestamp": at,
		"source": map[string]any{"component": api.Manager}, "reportingComponent": api.Manager,
	}
}
