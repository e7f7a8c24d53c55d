package zonesync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weft/internal/wire"
)

// Receiver applies the batches of one sender, for one kind. It outlives streams: its state saves comparisons, and may
// be lost without harm. It is not safe for concurrent use.
type Receiver struct {
	Limits // not to be changed after the first use
	way    Direction

	applied  Position      // the stored position of the sender's log; zero: unknown
	acked    Acked[uint64] // in the same epoch
	synced   bool
	rejected rejectedSet
	retry    bool

	// During a comparison whose deletions may need confirmation ([Limits.FreeDeletions]).
	compared map[Key]bool // the items stored at its beginning and not deleted since; nil: no comparison
	gone     map[Key]bool // deletions that are not applied yet
	doubted  Doubt
	released bool

	// Of the stream.
	caughtUp    bool          // all items are stored that the sender had when the stream began
	waiting     []*wire.Frame // batches and requests that are not handled yet
	applying    *Apply
	storedItems []StoredItem // the items of the digest; nil once the sender has sent a batch
	round       uint64       // of the last compare request
	listing     bool         // the caller has not called Digest yet
	received    uint64       // number of batches
	stored      uint64       // number of batches
	unstored    int          // bytes of items in batches that are not stored
	ackDue      bool         // an ack is to be sent
	frames      []*wire.Frame
}

// Apply has items to store, in one transaction or separately. Each is the newest state of its key. An item that is
// already stored in the same state needs no write.
type Apply struct {
	Items []Item

	position Position // of the sender's log, once the items are stored; zero: unchanged
	complete bool
	batches  uint64 // whose items these are
	bytes    int    // of the batches
	retried  bool   // the items were rejected before
}

// join adds the items of the next batch. They replace former states of their keys.
func (a *Apply) join(next *Apply) {
	newer := make(map[Key]bool, len(next.Items))
	for _, item := range next.Items {
		newer[item.Key] = true
	}
	a.Items = slices.DeleteFunc(a.Items, func(item Item) bool { return newer[item.Key] })
	a.Items = append(a.Items, next.Items...)
	if next.position != (Position{}) {
		a.position = next.position
	}
	a.complete = a.complete || next.complete
	a.batches, a.bytes = a.batches+next.batches, a.bytes+next.bytes
}

// NewReceiver returns a receiver without a position, so that it starts with a comparison.
func NewReceiver(way Direction) *Receiver {
	return &Receiver{Limits: defaultLimits(), way: way, rejected: newRejectedSet()}
}

// Doubt is a comparison that would delete most of the stored items.
type Doubt struct {
	Deletions, Of int // Of is the number of stored items
}

// PendingDoubt returns the last comparison whose deletions wait for confirmation, or false. The deletions are in
// [Receiver.Rejections] until [Receiver.Release], or until their items come back.
func (r *Receiver) PendingDoubt() (Doubt, bool) {
	if r.doubted == (Doubt{}) || !r.rejected.missed && !r.rejected.anyDoubted() {
		return Doubt{}, false
	}
	return r.doubted, true
}

// Release confirms the doubted deletions, which the next retry applies. Those that were not kept come with the next
// comparison.
func (r *Receiver) Release() {
	if r.doubted == (Doubt{}) {
		return
	}
	r.doubted, r.released, r.retry = Doubt{}, r.rejected.missed, true
	r.rejected.releaseDoubted()
}

// connect starts a stream with the receiver's position. Items that are being applied are sent again.
func (r *Receiver) connect() {
	r.abandon()
	r.caughtUp, r.waiting, r.applying, r.storedItems, r.listing = false, nil, nil, nil, false
	r.received, r.stored, r.unstored, r.round, r.ackDue, r.frames = 0, 0, 0, 0, r.acked.Most > 0, nil
	r.compared, r.gone = nil, nil
	r.rejected.markAllChanged()
	r.sendPosition()
}

// abandon discards the items that are being applied. Some of them may be stored, so older rejected states of them are
// never retried.
func (r *Receiver) abandon() {
	switch {
	case r.applying == nil:
	case r.applying.retried:
		r.retry = true
	default:
		for _, item := range r.applying.Items {
			r.rejected.dropRejected(item.Key)
		}
	}
}

func (r *Receiver) sendPosition() {
	position := &wire.Position{Epoch: r.applied.Epoch, Seq: r.applied.Seq}
	r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Position{Position: position}})
}

// IsSynced reports that all items are stored that the sender had when it first connected, and that no item is rejected
// that a retry may accept.
func (r *Receiver) IsSynced() bool {
	return r.synced && !r.rejected.missed && !r.rejected.anyRetryable()
}

// CaughtUp is [Receiver.IsSynced] for the stream: all items are stored that the sender had when the stream began.
func (r *Receiver) CaughtUp() bool { return r.caughtUp && r.IsSynced() }

// Position returns the stored position of the sender's log, or zero if it is unknown.
func (r *Receiver) Position() Position { return r.applied }

// AckedPositions returns the positions whose items all proxies of the receiver have acked.
func (r *Receiver) AckedPositions() Acked[Position] {
	return mapAcked(func(seq []uint64) Position {
		return Position{Epoch: r.applied.Epoch, Seq: seq[0], lateAccepts: r.applied.lateAccepts}
	}, r.acked)
}

// SetAcked records that all proxies of the receiver have acked the items stored at positions, which are former results
// of [Receiver.Position]. It ignores those from before a comparison, or from before a rejected item was accepted.
func (r *Receiver) SetAcked(positions Acked[Position]) {
	if r.rejected.missed {
		return
	}
	valid := mapAcked(func(p []Position) uint64 {
		if p[0].Epoch != r.applied.Epoch || p[0].lateAccepts != r.applied.lateAccepts || p[0].Seq > r.applied.Seq {
			return 0
		}
		return p[0].Seq
	}, positions)
	next := mapAcked(slices.Max[[]uint64], r.acked, valid)
	r.ackDue = r.ackDue || !next.Equal(r.acked)
	r.acked = next
}

// Retry applies the rejected items again, those that are being applied included: something that they lacked may exist
// now.
func (r *Receiver) Retry() { r.retry = true }

// resetPosition discards the position in the sender's log. No earlier position is valid after it.
func (r *Receiver) resetPosition() {
	r.applied, r.acked = Position{lateAccepts: r.applied.lateAccepts + 1}, Acked[uint64]{}
}

// Share bounds the rejected items by a budget of several receivers. Call it before the first use.
func (r *Receiver) Share(b *Budget) { r.rejected.budget = b }

// DropRejected returns the receiver's part of a shared budget. The receiver must not be used after it.
func (r *Receiver) DropRejected() { r.rejected.dropAll() }

// HasMissed reports that more items were rejected than Rejected returns.
func (r *Receiver) HasMissed() bool { return r.rejected.missed }

// Rejections returns the rejected items, sorted by key.
func (r *Receiver) Rejections() []Rejection { return r.rejected.rejections() }

// step takes one frame of the sender. After an error, the stream must end.
func (r *Receiver) step(f *wire.Frame) error {
	switch m := f.Message.(type) {
	case *wire.Frame_CompareRequest:
		if len(m.CompareRequest.Buckets) > maxBuckets {
			return fmt.Errorf("a compare request is for %d buckets, want at most %d", len(m.CompareRequest.Buckets),
				maxBuckets)
		}
	case *wire.Frame_Batch:
		r.received++
		if r.received-r.stored > uint64(r.Window) {
			return fmt.Errorf("more than %d batches are not acked", r.Window)
		}
		if r.unstored += bytesIn(m.Batch); r.unstored > r.WindowBytes+MaxFrame {
			return fmt.Errorf("more than %d bytes are not acked", r.WindowBytes+MaxFrame)
		}
	default:
		return fmt.Errorf("a frame of type %T is not for a receiver", f.Message)
	}
	if len(r.waiting) > 2*r.Window {
		return fmt.Errorf("more than %d frames wait", r.Window)
	}
	r.waiting = append(r.waiting, f)
	return nil
}

// bytesIn returns the size of the items of a batch in bytes.
func bytesIn(b *wire.Batch) (bytes int) {
	for _, item := range b.Items {
		bytes += len(item)
	}
	return bytes
}

// ready returns the frames to send and the work for the caller.
func (r *Receiver) ready() (Ready, error) {
	applying, listing := r.applying, r.listing
	if err := r.advance(); err != nil {
		return Ready{}, err
	}
	r.acknowledge()
	ready := Ready{Frames: r.frames, List: r.listing && !listing}
	if r.applying != applying {
		ready.Apply = r.applying
	}
	r.frames = nil
	return ready, nil
}

// advance handles waiting frames in order, up to the first one that needs the caller.
func (r *Receiver) advance() error {
	for r.applying == nil && !r.listing {
		switch {
		case r.retry:
			r.retryRejected()
		case len(r.waiting) == 0:
			return nil
		default:
			next := r.waiting[0]
			r.waiting = r.waiting[1:]
			if err := r.handleFrame(next); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Receiver) handleFrame(f *wire.Frame) error {
	if request := f.GetCompareRequest(); request != nil {
		return r.handleCompareRequest(request)
	}
	return r.handleBatch(f.GetBatch())
}

// handleCompareRequest starts or continues a comparison. The start discards the position in the sender's log.
func (r *Receiver) handleCompareRequest(request *wire.CompareRequest) error {
	if len(request.Buckets) > 0 {
		if request.Round != r.round || r.storedItems == nil {
			return fmt.Errorf("a compare request for the items of round %d came before one for sums", request.Round)
		}
		r.sendItems(request.Buckets)
		return nil
	}
	if request.Round <= r.round {
		return fmt.Errorf("a compare request of round %d came after one of round %d", request.Round, r.round)
	}
	r.resetPosition()
	r.round, r.listing = request.Round, true
	r.rejected.dropAll()
	r.retry = false
	r.compared, r.gone, r.doubted = nil, nil, Doubt{}
	return nil
}

// Digest passes the stored items that [Ready.List] requested. The receiver keeps the slice's content until the sender's
// first batch.
func (r *Receiver) Digest(items []StoredItem) {
	if !r.listing {
		return
	}
	r.listing = false
	r.storedItems = append([]StoredItem{}, items...)
	if r.FreeDeletions > 0 {
		r.compared, r.gone = make(map[Key]bool, len(items)), map[Key]bool{}
		for _, item := range items {
			r.compared[item.Key] = true
		}
	}
	r.sendDigest(&wire.Digest{Round: r.round, Sums: sums(r.storedItems, r.buckets(len(r.storedItems)))})
}

func (r *Receiver) sendDigest(part *wire.Digest) {
	r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Digest{Digest: part}})
}

// sendItems sends the items of some buckets.
func (r *Receiver) sendItems(buckets []uint32) {
	n := r.buckets(len(r.storedItems))
	wanted := newBits(n)
	for _, b := range buckets {
		wanted.set(b % uint32(n))
	}
	part := &wire.Digest{Round: r.round}
	for _, items := range r.storedItems {
		if !wanted.has(uint32(bucket(items.Hash, n))) {
			continue
		}
		if len(part.Items) == maxListed {
			r.sendDigest(part)
			part = &wire.Digest{Round: r.round}
		}
		part.Items = append(part.Items, &wire.ItemDigest{Key: items.Key.wire(), Hash: uint64(items.Hash)})
	}
	part.Last = true
	r.sendDigest(part)
	r.storedItems = nil
}

// handleBatch starts to apply a batch, with the batches that wait after it: they came while former items were stored.
// So a receiver that stores a batch in a longer time than its sender takes to send one stays behind by one storing.
func (r *Receiver) handleBatch(b *wire.Batch) error {
	apply, err := r.readBatch(b, r.applied)
	if err != nil {
		return err
	}
	r.storedItems = nil
	for r.compared == nil && r.nextFits(len(apply.Items)) {
		next, err := r.readBatch(r.waiting[0].GetBatch(), cmp.Or(apply.position, r.applied))
		if err != nil {
			return err
		}
		r.waiting = r.waiting[1:]
		apply.join(next)
	}
	if len(apply.Items) == 0 {
		r.finish(apply, nil)
	} else {
		r.applying = apply
	}
	return nil
}

// nextFits returns whether a batch waits whose items may be stored together with a number of others.
func (r *Receiver) nextFits(items int) bool {
	if len(r.waiting) == 0 {
		return false
	}
	next := r.waiting[0].GetBatch()
	return next != nil && items+len(next.Items) <= r.BatchItems
}

// readBatch returns the items of a batch that follows a position.
func (r *Receiver) readBatch(b *wire.Batch, from Position) (*Apply, error) {
	switch {
	case len(b.Items) > r.BatchItems:
		return nil, fmt.Errorf("a batch has %d items, want at most %d", len(b.Items), r.BatchItems)
	case b.Epoch == 0 || b.Round != r.round:
		return nil, fmt.Errorf("a batch is of epoch %x and round %d, and the last compare request was of round %d",
			b.Epoch,
			b.Round, r.round)
	case from.Epoch != 0 && (b.Epoch != from.Epoch || b.Seq < from.Seq):
		return nil, fmt.Errorf("a batch of epoch %x position %d does not follow epoch %x position %d", b.Epoch, b.Seq,
			from.Epoch, from.Seq)
	}
	apply := &Apply{complete: b.Complete, batches: 1, bytes: bytesIn(b)}
	if b.Seq != 0 {
		apply.position = Position{Epoch: b.Epoch, Seq: b.Seq}
	}
	for _, encoded := range b.Items {
		item, err := decodeItem(encoded)
		if err != nil {
			return nil, err
		}
		why := r.way.May(item.Key.Owner)
		switch {
		case why == nil && r.compared != nil:
			r.collectCompared(apply, item)
		case why == nil:
			apply.Items = append(apply.Items, item)
		case item.Deleted:
			r.rejected.removeAccepted(item.Key) // it was never accepted
		default:
			r.reject(&rejectedItem{item: Item{Key: item.Key}, reason: why.Error(), final: true})
		}
	}
	if b.Complete && r.compared != nil {
		r.finishComparison(apply)
	}
	return apply, nil
}

// collectCompared adds an item during a comparison. Deletions of compared items wait for the end, when their number is
// known.
func (r *Receiver) collectCompared(apply *Apply, item Item) {
	switch {
	case !item.Deleted:
		delete(r.gone, item.Key)
		apply.Items = append(apply.Items, item)
	case r.compared[item.Key]:
		r.gone[item.Key] = true
	default:
		apply.Items = append(apply.Items, item) // it was created and deleted during the comparison
	}
}

// finishComparison applies the deletions of a comparison, unless they are most of the stored items.
func (r *Receiver) finishComparison(apply *Apply) {
	doubt := Doubt{len(r.gone), len(r.compared)}
	doubtful := doubt.Deletions > r.FreeDeletions && 2*doubt.Deletions > doubt.Of && !r.released
	for _, key := range slices.SortedFunc(maps.Keys(r.gone), compareKeys) {
		item := Item{Key: key, Deleted: true}
		if doubtful {
			reason := fmt.Sprintf("it is one of %d deletions of %d resources, which wait until an operator confirms "+
				"them on the global control plane", doubt.Deletions, doubt.Of)
			r.reject(&rejectedItem{item: item, reason: reason, doubted: true})
		} else {
			apply.Items = append(apply.Items, item)
		}
	}
	r.compared, r.gone, r.released = nil, nil, false
	if doubtful {
		r.doubted = doubt
	}
}

// retryRejected applies the rejected items again, before later batches. Rejected items that were not kept come by a
// comparison.
func (r *Receiver) retryRejected() {
	r.retry = false
	if r.rejected.missed {
		r.resetPosition()
		r.sendPosition()
	}
	if items := r.rejected.retryable(); len(items) > 0 {
		r.applying = &Apply{Items: items, retried: true}
	}
}

// NoteApplied reports that all items of a are durably stored, except the rejected ones. The receiver ignores a report
// of a former stream.
func (r *Receiver) NoteApplied(a *Apply, rejected []Rejection) {
	if a == r.applying {
		r.applying = nil
		r.finish(a, rejected)
	}
}

func (r *Receiver) finish(a *Apply, rejected []Rejection) {
	reasons := map[Key]string{}
	for _, rejection := range rejected {
		reasons[rejection.Key] = rejection.Reason
	}
	accepted := false
	for _, item := range a.Items {
		if reason, no := reasons[item.Key]; no {
			r.reject(&rejectedItem{item: item, reason: reason})
		} else {
			accepted = r.rejected.removeAccepted(item.Key) || accepted
		}
	}
	if a.retried {
		if accepted {
			r.resetAcked()
		}
		return
	}
	r.stored += a.batches
	r.unstored -= a.bytes
	r.ackDue = true
	r.synced, r.caughtUp = r.synced || a.complete, r.caughtUp || a.complete
	if a.position != (Position{}) && r.compared == nil {
		r.applied.Epoch, r.applied.Seq = a.position.Epoch, a.position.Seq
	}
}

// resetAcked discards the acked positions, since an item before it is not stored, or was stored after it.
func (r *Receiver) resetAcked() {
	r.applied.lateAccepts++
	r.acked, r.ackDue = Acked[uint64]{}, true
}

// reject keeps an item within the bounds. An item that is not kept is never acked, so the acked positions are reset.
func (r *Receiver) reject(rejection *rejectedItem) {
	if !r.rejected.addRejected(rejection, r.Limits) {
		r.resetAcked()
	}
}

// acknowledge sends the news since the last ack. The acked positions come with the last section of the rejections,
// since they do not cover them.
func (r *Receiver) acknowledge() {
	keys := r.rejected.takeChanged()
	for r.ackDue || len(keys) > 0 {
		r.ackDue = false
		ack := &wire.Ack{Batches: r.stored, More: r.rejected.missed}
		part := keys[:min(len(keys), maxListed)]
		if keys = keys[len(part):]; len(keys) == 0 {
			putAcked(ack, r.acked)
		}
		for _, key := range part {
			if rejection := r.rejected.all[key]; rejection != nil {
				ack.Rejected = append(ack.Rejected, &wire.Rejection{Key: key.wire(), Reason: rejection.reason})
			} else {
				ack.Cleared = append(ack.Cleared, key.wire())
			}
		}
		r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Ack{Ack: ack}})
	}
}
