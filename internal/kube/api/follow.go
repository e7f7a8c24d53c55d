package api

import (
	"context"
	"errors"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/wait"
)

// Edit creates or updates one object, until no other client was faster. edit gets the stored object, nil where there is
// none, and returns the object to store; nil changes nothing. edit may be called several times.
func Edit[T any](ctx context.Context, c *Client, collection, name string, edit func(stored *T) (*T, error)) error {
	for {
		stored := new(T)
		err := c.Get(ctx, collection+"/"+name, nil, stored)
		if apierrors.IsNotFound(err) {
			stored = nil
		} else if err != nil {
			return err
		}
		edited, err := edit(stored)
		if err != nil || edited == nil {
			return err
		}
		if stored == nil {
			err = c.Create(ctx, collection, edited, nil)
		} else {
			err = c.Update(ctx, collection+"/"+name, edited, nil)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// retryPause is the pause after a watch has failed or ended.
const retryPause = time.Second

// Follow calls on with the objects of a collection, then with their changes, until ctx ends. A stream of the API server
// ends after some minutes, and the next one begins with all objects again. An error of the API server or of on ends a
// stream too, and is logged with a message that says what waits for it.
func (c *Client) Follow(ctx context.Context, collection string, o Options, on func(Event) error, call *Call,
	message string) {
	defer call.NoteSuccess() // it is not tried any more
	for ctx.Err() == nil {
		if err := c.followOnce(ctx, collection, o, on, call); !errors.Is(err, io.EOF) && ctx.Err() == nil {
			call.NoteFailure(err, message, "path", collection)
		}
		_ = wait.Sleep(ctx, retryPause)
	}
}

// followOnce follows one stream until it ends.
func (c *Client) followOnce(ctx context.Context, collection string, o Options, on func(Event) error, call *Call) error {
	watch, err := c.Watch(ctx, collection, "", o)
	if err != nil {
		return err
	}
	defer watch.Close()
	call.NoteResponse() // the objects may be none, so that no event follows
	for {
		event, err := watch.Next()
		if err != nil {
			return err
		}
		if event.Type == Bookmark {
			continue
		}
		if err := on(event); err != nil {
			return err
		}
		call.NoteSuccess()
	}
}
