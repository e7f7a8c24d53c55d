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

// writers is the number of concurrent writes, which the store can commit together.
const writers = 32

// apply stores items of one kind, which have different keys, and returns the rejected ones, including those that check
// rejects.
func apply(ctx context.Context, writer *admission.Writer, d resource.Descriptor, items []zonesync.Item,
	check func(zonesync.Item) error, log *slog.Logger) []zonesync.Rejection {
	var mu sync.Mutex
	var rejected []zonesync.Rejection
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
				rejected = append(rejected,
					zonesync.Rejection{Key: item.Key, Reason: rejectReason(ctx, err, d, item, log)})
			}
			return nil
		})
	}
	_ = group.Wait() // an item that fails is rejected alone
	return rejected
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

// rejectReason returns the reason of a rejection for the other side, without details that only an operator of this side
// may see. It logs nothing once ctx, that of the stream, has ended: the item comes again by the next stream.
func rejectReason(ctx context.Context, err error, d resource.Descriptor, item zonesync.Item,
	log *slog.Logger) string {
	if resource.CodeOf(err) != resource.Internal || ctx.Err() != nil {
		return err.Error()
	}
	log.Error("a resource of another control plane can't be stored", "kind", d.Describe().Name, "resource", item.Key,
		"error", err)
	return "the control plane failed to store it; its log says why"
}

// rowsOf returns the keys under which items are stored.
func rowsOf(d resource.Descriptor, items []zonesync.Item) []resource.Key {
	rows := make([]resource.Key, len(items))
	for i, item := range items {
		r := receivedOf(d, item)
		rows[i] = r.Key()
	}
	return rows
}
