// Package api is a client of the API server of Kubernetes that sends and receives JSON as it is: no field of an object
// is lost because this release does not know it.
//
// client-go authenticates, follows the server's requests to wait, and reads its errors ([errors.IsConflict] and so on
// of apimachinery). No kind is compiled in.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Manager is the name of this client in the managedFields of objects.
const Manager = "weft"

// Client sends requests to one API server. It is safe for concurrent use.
type Client struct{ rest rest.Interface }

// New returns a client. It sends no request.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = Manager
	config.WarningHandlerWithContext = rest.NoWarnings{} // warnings about objects are for users
	if config.QPS == 0 {
		config.QPS = -1 // the API server limits requests itself (API priority and fairness)
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	return &Client{client}, nil
}

// Options are the query of a request. Empty values are omitted.
type Options map[string]string

// Get reads a path into a value.
func (c *Client) Get(ctx context.Context, path string, o Options, into any) error {
	return do(ctx, c.rest.Get(), path, o, nil, into)
}

// Create sends a new object, and reads it as it is stored.
func (c *Client) Create(ctx context.Context, path string, object, into any) error {
	return do(ctx, c.rest.Post(), path, Options{"fieldManager": Manager}, object, into)
}

// Update replaces an object whose resourceVersion is that of the sent one, and reads it as it is stored.
func (c *Client) Update(ctx context.Context, path string, object, into any) error {
	return do(ctx, c.rest.Put(), path, Options{"fieldManager": Manager}, object, into)
}

// Apply sends the fields that this client owns of an object (server-side apply), and takes them from other managers.
func (c *Client) Apply(ctx context.Context, path string, object, into any) error {
	return do(ctx, c.rest.Patch(types.ApplyYAMLPatchType), path, Options{"fieldManager": Manager, "force": "true"},
		object, into)
}

// Delete deletes an object. Preconditions that are not empty must hold.
func (c *Client) Delete(ctx context.Context, path string, uid, resourceVersion string) error {
	preconditions := map[string]string{}
	if uid != "" {
		preconditions["uid"] = uid
	}
	if resourceVersion != "" {
		preconditions["resourceVersion"] = resourceVersion
	}
	return do(ctx, c.rest.Delete(), path, nil, map[string]any{"kind": "DeleteOptions", "apiVersion": "v1",
		"preconditions": preconditions, "propagationPolicy": "Background"}, nil)
}

func do(ctx context.Context, request *rest.Request, path string, o Options, body, into any) error {
	prepared, err := with(request, path, o, body)
	if err != nil {
		return err
	}
	result := prepared.Do(ctx)
	if err := result.Error(); err != nil || into == nil { // with the server's reasons, which Raw omits
		return err
	}
	raw, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func with(request *rest.Request, path string, o Options, body any) (*rest.Request, error) {
	request = request.AbsPath(path).SetHeader("Accept", "application/json")
	for name, value := range o {
		if value != "" {
			request = request.Param(name, value)
		}
	}
	if body == nil {
		return request, nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return request.Body(raw), nil
}

// Types of events.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK" // it has a resourceVersion only
	failed   = "ERROR"
)

// Event is one event of a watch.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch is a stream of events.
type Watch struct {
	body    io.ReadCloser
	decoder *json.Decoder
}

// Watch follows the changes below a path after a resourceVersion. The server ends a stream after some minutes.
func (c *Client) Watch(ctx context.Context, path, after string, o Options) (*Watch, error) {
	query := Options{"watch": "true", "resourceVersion": after, "allowWatchBookmarks": "true"}
	for name, value := range o {
		query[name] = value
	}
	request, err := with(c.rest.Get(), path, query, nil)
	if err != nil {
		return nil, err
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	return &Watch{body, json.NewDecoder(body)}, nil
}

// Next returns the next event. A resourceVersion that the server no longer has is an error for which [IsExpired] is
// true; io.EOF is the end of the stream.
func (w *Watch) Next() (Event, error) {
	var e Event
	if err := w.decoder.Decode(&e); err != nil {
		return e, err
	}
	if e.Type != failed {
		return e, nil
	}
	var status metav1.Status
	if err := json.Unmarshal(e.Object, &status); err != nil {
		return e, fmt.Errorf("kube: %w", err)
	}
	return e, &apierrors.StatusError{ErrStatus: status}
}

// Close ends the stream.
func (w *Watch) Close() { w.body.Close() }

// IsExpired reports whether an error means that the server does not have a resourceVersion: it was compacted, or it is
// of a later time than the server's data.
func IsExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Status returns the server's response to a request that it rejected. It is false where no response came.
func Status(err error) (metav1.Status, bool) {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status(), true
	}
	return metav1.Status{}, false
}
