package zonesync

import (
	"fmt"
	"maps"
	"slices"

	"weft/internal/wire"
)

// Receiver takes what one sender tells of one kind. It outlives the streams: what it remembers spares the
// comparison, and is lost without harm. One caller at a time.
type Receiver struct {
	Limits // not to be changed once it is used
	way    Way

	applied Position // up to where the sender's log is stored; zero: it can't say
	settled uint64   // in the same epoch
	synced  bool
	refused refused
	retry   bool

	// Of a comparison whose deletions are doubted when it is over ([Limits.FreeDeletions]).
	compared map[Key]bool // what was held when it began, and was not deleted since; nil: there is none
	gone     map[Key]bool // deletions that are not applied yet
	doubted  Doubt
	released bool

	// Of the stream.
	waiting  []*wire.Frame // batches and questions that are not handled yet
	applying *Apply
	held     []StoredItem // what was answered to the sender's question; nil once it is told
	round    uint64       // of that question
	listing  bool         // the caller owes an answer
	received uint64       // batches
	stored   uint64       // batches
	unstored int          // bytes of items in those that are not stored
	owes     bool         // an acknowledgement
	frames   []*wire.Frame
}

// Apply are items to be stored, in one transaction or one by one. Each is the newest state of its key; what is
// stored in the same state already needs no write.
type Apply struct {
	Items []Item

	position Position // of the sender's log, once these are stored; zero: unchanged
	complete bool
	bytes    int  // of the batch
	again    bool // they were refused before
}

// NewReceiver answers the receiver of a kind. It remembers nothing yet.
func NewReceiver(way Way) *Receiver {
	return &Receiver{Limits: defaultLimits(), way: way, refused: newRefused()}
}

// Doubt is a comparison that would delete most of what is held.
type Doubt struct {
	Deletions, Of int // of so many items that are held
}

// Doubted returns the last comparison whose deletions are not applied, because they are most of what is held; false:
// there is none. They are among [Receiver.Rejected] until [Receiver.Release], or until their items come back.
func (r *Receiver) Doubted() (Doubt, bool) {
	if r.doubted == (Doubt{}) || !r.refused.missed && !r.refused.doubts() {
		return Doubt{}, false
	}
	return r.doubted, true
}

// Release has the deletions applied that were doubted. Of those that are not kept, the next comparison brings them.
func (r *Receiver) Release() {
	if r.doubted == (Doubt{}) {
		return
	}
	r.doubted, r.released, r.retry = Doubt{}, r.refused.missed, true
	r.refused.trust()
}

// connect begins a stream with a claim. What is still being applied counts for nothing: it comes again.
func (r *Receiver) connect() {
	r.abandon()
	r.waiting, r.applying, r.held, r.listing = nil, nil, nil, false
	r.received, r.stored, r.unstored, r.round, r.owes, r.frames = 0, 0, 0, 0, r.settled > 0, nil
	r.compared, r.gone = nil, nil
	r.refused.reportAll()
	r.claim()
}

// abandon gives up what is being applied. Some of it may be stored, so older states of it are never tried again;
// it comes again itself.
func (r *Receiver) abandon() {
	switch {
	case r.applying == nil:
	case r.applying.again:
		r.retry = true
	default:
		for _, item := range r.applying.Items {
			r.refused.drop(item.Key)
		}
	}
}

func (r *Receiver) claim() {
	claim := &wire.Position{Epoch: r.applied.Epoch, Seq: r.applied.Seq}
	r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Position{Position: claim}})
}

// Synced says that everything is stored that the sender had when it was connected first, and that nothing is
// refused which may be lacking because of that.
func (r *Receiver) Synced() bool {
	return r.synced && !r.refused.missed && !r.refused.any()
}

// Position answers up to where the sender's log is stored; zero where that can't be said.
func (r *Receiver) Position() Position { return r.applied }

// Acked answers up to where everybody behind the receiver runs with what it has stored.
func (r *Receiver) Acked() Position {
	return Position{Epoch: r.applied.Epoch, Seq: r.settled, again: r.applied.again}
}

// SetAcked says that everybody behind the receiver runs with what was stored when [Receiver.Position] answered
// p. One that is not of the present, as before a comparison or before something that was refused was taken
// after all, is ignored.
func (r *Receiver) SetAcked(p Position) {
	if !r.refused.missed && p.Epoch == r.applied.Epoch && p.again == r.applied.again && p.Seq <= r.applied.Seq &&
		p.Seq > r.settled {
		r.settled, r.owes = p.Seq, true
	}
}

// Retry has what was refused tried again, what is being applied included: something that it may have lacked is
// there.
func (r *Receiver) Retry() { r.retry = true }

// forget drops what is remembered of the sender's log. No earlier position is ever one of the present again.
func (r *Receiver) forget() {
	r.applied, r.settled = Position{again: r.applied.again + 1}, 0
}

// Share has the receiver keep what it refuses within a budget of several receivers. Call it before the first use.
func (r *Receiver) Share(b *Budget) { r.refused.budget = b }

// DropRejected gives back what the receiver keeps of a shared budget. It is not used any more then.
func (r *Receiver) DropRejected() { r.refused.clear() }

// Missed says that more was refused than is listed and kept.
func (r *Receiver) Missed() bool { return r.refused.missed }

// Rejected lists what is not taken, by key.
func (r *Receiver) Rejected() []Rejection { return r.refused.list() }

// step takes one frame of the sender. An error is a reason to end the stream.
func (r *Receiver) step(f *wire.Frame) error {
	switch m := f.Message.(type) {
	case *wire.Frame_CompareRequest:
		if len(m.CompareRequest.Buckets) > maxBuckets {
			return fmt.Errorf("a question is for %d buckets, want at most %d", len(m.CompareRequest.Buckets),
				maxBuckets)
		}
	case *wire.Frame_Batch:
		r.received++
		if r.received-r.stored > uint64(r.Window) {
			return fmt.Errorf("more than %d batches are not acknowledged", r.Window)
		}
		if r.unstored += bytesIn(m.Batch); r.unstored > r.WindowBytes+MaxFrame {
			return fmt.Errorf("more than %d bytes are not acknowledged", r.WindowBytes+MaxFrame)
		}
	default:
		return fmt.Errorf("a frame of type %T is not for a receiver", f.Message)
	}
	if len(r.waiting) > 2*r.Window {
		return fmt.Errorf("more than %d questions wait for their answers", r.Window)
	}
	r.waiting = append(r.waiting, f)
	return nil
}

// bytesIn are those of the items of a batch.
func bytesIn(b *wire.Batch) (bytes int) {
	for _, item := range b.Items {
		bytes += len(item)
	}
	return bytes
}

// ready answers what is to be sent and done now.
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

// advance handles what waits, in order, as far as it goes without the caller.
func (r *Receiver) advance() error {
	for r.applying == nil && !r.listing {
		switch {
		case r.retry:
			r.again()
		case len(r.waiting) == 0:
			return nil
		default:
			next := r.waiting[0]
			r.waiting = r.waiting[1:]
			if err := r.handle(next); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Receiver) handle(f *wire.Frame) error {
	if ask := f.GetCompareRequest(); ask != nil {
		return r.ask(ask)
	}
	return r.batch(f.GetBatch())
}

// ask begins or continues a comparison. What was remembered of the sender's log is void with it.
func (r *Receiver) ask(ask *wire.CompareRequest) error {
	if len(ask.Buckets) > 0 {
		if ask.Round != r.round || r.held == nil {
			return fmt.Errorf("a question for the items of round %d came before one for sums", ask.Round)
		}
		r.list(ask.Buckets)
		return nil
	}
	if ask.Round <= r.round {
		return fmt.Errorf("a question of round %d came after one of round %d", ask.Round, r.round)
	}
	r.forget()
	r.round, r.listing = ask.Round, true
	r.refused.clear()
	r.retry = false
	r.compared, r.gone, r.doubted = nil, nil, Doubt{}
	return nil
}

// Digest answers [Ready.List]. The list is kept until the sender has begun to send.
func (r *Receiver) Digest(held []StoredItem) {
	if !r.listing {
		return
	}
	r.listing = false
	r.held = append([]StoredItem{}, held...)
	if r.FreeDeletions > 0 {
		r.compared, r.gone = make(map[Key]bool, len(held)), map[Key]bool{}
		for _, item := range held {
			r.compared[item.Key] = true
		}
	}
	r.say(&wire.Digest{Round: r.round, Sums: sums(r.held, r.buckets(len(r.held)))})
}

func (r *Receiver) say(part *wire.Digest) {
	r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Digest{Digest: part}})
}

// list tells the items of some buckets.
func (r *Receiver) list(buckets []uint32) {
	n := r.buckets(len(r.held))
	wanted := newBits(n)
	for _, b := range buckets {
		wanted.set(b % uint32(n))
	}
	part := &wire.Digest{Round: r.round}
	for _, held := range r.held {
		if !wanted.has(uint32(bucket(held.Hash, n))) {
			continue
		}
		if len(part.Items) == maxPart {
			r.say(part)
			part = &wire.Digest{Round: r.round}
		}
		part.Items = append(part.Items, &wire.ItemDigest{Key: held.Key.wire(), Hash: uint64(held.Hash)})
	}
	part.Last = true
	r.say(part)
	r.held = nil
}

// batch checks what is to be applied.
func (r *Receiver) batch(b *wire.Batch) error {
	apply, err := r.readBatch(b)
	if err != nil {
		return err
	}
	r.held = nil
	if len(apply.Items) == 0 {
		r.finish(apply, nil)
	} else {
		r.applying = apply
	}
	return nil
}

func (r *Receiver) readBatch(b *wire.Batch) (*Apply, error) {
	switch {
	case len(b.Items) > r.BatchItems:
		return nil, fmt.Errorf("a batch has %d items, want at most %d", len(b.Items), r.BatchItems)
	case b.Epoch == 0 || b.Round != r.round:
		return nil, fmt.Errorf("a batch is of epoch %x and round %d, and the last question was of round %d", b.Epoch,
			b.Round, r.round)
	case r.applied.Epoch != 0 && (b.Epoch != r.applied.Epoch || b.Seq < r.applied.Seq):
		return nil, fmt.Errorf("a batch of epoch %x position %d does not follow epoch %x position %d", b.Epoch, b.Seq,
			r.applied.Epoch, r.applied.Seq)
	}
	apply := &Apply{complete: b.Complete, bytes: bytesIn(b)}
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
			r.collect(apply, item)
		case why == nil:
			apply.Items = append(apply.Items, item)
		case item.Deleted:
			r.refused.accept(item.Key) // it was never taken
		default:
			r.refuse(&refusal{item: Item{Key: item.Key}, reason: why.Error(), final: true})
		}
	}
	if b.Complete && r.compared != nil {
		r.conclude(apply)
	}
	return apply, nil
}

// collect takes an item while a comparison lasts, whose deletions are applied at its end: only then it is known how
// many they are.
func (r *Receiver) collect(apply *Apply, item Item) {
	switch {
	case !item.Deleted:
		delete(r.gone, item.Key)
		apply.Items = append(apply.Items, item)
	case r.compared[item.Key]:
		r.gone[item.Key] = true
	default:
		apply.Items = append(apply.Items, item) // it came, and went, meanwhile
	}
}

// conclude ends a comparison: its deletions are applied, unless they are most of what was held.
func (r *Receiver) conclude(apply *Apply) {
	doubt := Doubt{len(r.gone), len(r.compared)}
	doubtful := doubt.Deletions > r.FreeDeletions && 2*doubt.Deletions > doubt.Of && !r.released
	for _, key := range slices.SortedFunc(maps.Keys(r.gone), compareKeys) {
		item := Item{Key: key, Deleted: true}
		if doubtful {
			reason := fmt.Sprintf("it is one of %d deletions of %d resources, which wait until an operator confirms "+
				"them on the global control plane", doubt.Deletions, doubt.Of)
			r.refuse(&refusal{item: item, reason: reason, doubted: true})
		} else {
			apply.Items = append(apply.Items, item)
		}
	}
	r.compared, r.gone, r.released = nil, nil, false
	if doubtful {
		r.doubted = doubt
	}
}

// again has what was refused applied once more, before anything newer. What was not kept comes by a comparison.
func (r *Receiver) again() {
	r.retry = false
	if r.refused.missed {
		r.forget()
		r.claim()
	}
	if items := r.refused.items(); len(items) > 0 {
		r.applying = &Apply{Items: items, again: true}
	}
}

// Applied reports that what was to be applied is durably stored, apart from what was refused. Where it was
// overtaken by a new stream the report is ignored.
func (r *Receiver) Applied(a *Apply, refused []Rejection) {
	if a == r.applying {
		r.applying = nil
		r.finish(a, refused)
	}
}

func (r *Receiver) finish(a *Apply, refused []Rejection) {
	reasons := map[Key]string{}
	for _, refusal := range refused {
		reasons[refusal.Key] = refusal.Reason
	}
	taken := false
	for _, item := range a.Items {
		if reason, no := reasons[item.Key]; no {
			r.refuse(&refusal{item: item, reason: reason})
		} else {
			taken = r.refused.accept(item.Key) || taken
		}
	}
	if a.again {
		r.late(taken)
		return
	}
	r.stored++
	r.unstored -= a.bytes
	r.owes = true
	r.synced = r.synced || a.complete
	if a.position != (Position{}) && r.compared == nil {
		r.applied.Epoch, r.applied.Seq = a.position.Epoch, a.position.Seq
	}
}

// late takes back what was said of having settled, where something was taken at a position that had settled
// without it.
func (r *Receiver) late(taken bool) {
	if taken {
		r.unsettle()
	}
}

func (r *Receiver) unsettle() {
	r.applied.again++
	r.settled, r.owes = 0, true
}

// refuse keeps an item, as far as it may. What is not kept has not settled.
func (r *Receiver) refuse(refusal *refusal) {
	if !r.refused.add(refusal, r.Limits) {
		r.unsettle()
	}
}

// acknowledge tells the sender what is new since it was told last. What has settled comes with the last of what
// is refused, since it says nothing of that.
func (r *Receiver) acknowledge() {
	keys := r.refused.news()
	for r.owes || len(keys) > 0 {
		r.owes = false
		ack := &wire.Ack{Batches: r.stored, More: r.refused.missed}
		part := keys[:min(len(keys), maxPart)]
		if keys = keys[len(part):]; len(keys) == 0 {
			ack.Acked = r.settled
		}
		for _, key := range part {
			if refusal := r.refused.all[key]; refusal != nil {
				ack.Rejected = append(ack.Rejected, &wire.Rejection{Key: key.wire(), Reason: refusal.reason})
			} else {
				ack.Cleared = append(ack.Cleared, key.wire())
			}
		}
		r.frames = append(r.frames, &wire.Frame{Message: &wire.Frame_Ack{Ack: ack}})
	}
}
