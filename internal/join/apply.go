package join

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"weft/internal/admission"
	"weft/internal/zonesync"
	"weft/resource"
)

// writers write items at the same time, so that the store can commit those of one moment together.
const writers = 32

// apply stores items of one kind, each its own key, and answers those that were not taken, those that the check rejects
// among them.
func apply(ctx context.Context, writer *admission.Writer, d resource.Descriptor, items []zonesync.Item, check func(zonesync.Item) error, log *slog.Logger) []zonesync.Rejection {
	var mu sync.Mutex
	var refused []zonesync.Rejection
	var group errgroup.Group
	group.SetLimit(writers)
	for _, item := range items {
		group.Go(func() error {
			err := check(item)
			if err == nil {
				err = write(ctx, writer, d, item)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, zonesync.Rejection{Key: item.Key, Reason: reason(err, d, item, log)})
			}
			return nil
		})
	}
	_ = group.Wait() // an item that fails is rejected alone
	return refused
}

func write(ctx context.Context, writer *admission.Writer, d resource.Descriptor, item zonesync.Item) error {
	r := receivedOf(d, item)
	if item.Deleted {
		return writer.RemoveReceived(ctx, r)
	}
	return writer.Receive(ctx, r)
}

func receivedOf(d resource.Descriptor, item zonesync.Item) admission.Received {
	return admission.Received{Kind: d, Mesh: item.Key.Mesh, Name: item.Key.Name, Owner: item.Key.Owner, Body: item.Body}
}

// reason says to the other side why an item was not taken, without what only an operator here should see.
func reason(err error, d resource.Descriptor, item zonesync.Item, log *slog.Logger) string {
	if resource.CodeOf(err) != resource.Internal {
		return err.Error()
	}
	log.Error("what another control plane sent can't be stored", "kind", d.Describe().Name, "resource", item.Key, "error", err)
	return "the control plane failed to store it; its log says why"
}

// rowsOf are the rows that items are stored in.
func rowsOf(d resource.Descriptor, items []zonesync.Item) []resource.Key {
	rows := make([]resource.Key, len(items))
	for i, item := range items {
		r := receivedOf(d, item)
		rows[i] = r.Key()
	}
	return rows
}
