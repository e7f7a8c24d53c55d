package join

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/zonesync"
	"weft/resource"
)

// writers is the number of concurrent writes, which the store can commit together.
const writers = 32

// apply stores items of one kind, which have different keys. It returns their rows, and the rejected items, including
// those that check rejects.
func apply(ctx context.Context, writer *admission.Writer, k *kindLog, items []zonesync.Item,
	check func(zonesync.Item) error, log *slog.Logger) (mirror.Rows, []zonesync.Rejection) {
	var mu sync.Mutex
	var rejected []zonesync.Rejection
	rows := mirror.Rows{}
	var group errgroup.Group
	group.SetLimit(writers)
	for _, item := range items {
		group.Go(func() error {
			row, version := k.key(item.Key), mirror.Version{}
			err := check(item)
			if err == nil {
				row, version, err = write(ctx, writer, k, item)
			}
			mu.Lock()
			defer mu.Unlock()
			if rows[row] = version; err != nil {
				rejected = append(rejected,
					zonesync.Rejection{Key: item.Key, Reason: rejectReason(ctx, err, k.kind, item, log)})
			}
			return nil
		})
	}
	_ = group.Wait() // an item that fails is rejected alone
	return rows, rejected
}

// write returns the key of an item's row, and the version if it has stored one.
func write(ctx context.Context, writer *admission.Writer, k *kindLog, item zonesync.Item) (resource.Key,
	mirror.Version, error) {
	r := receivedOf(k.kind, item)
	if item.Deleted {
		key, err := writer.RemoveReceivedAt(ctx, r)
		return key, mirror.Version{}, err
	}
	row, err := writer.ReceiveAt(ctx, r, k.replaced(item))
	if err != nil {
		return row.Key, mirror.Version{}, err
	}
	return row.Key, mirror.Written(row.Version), nil
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
