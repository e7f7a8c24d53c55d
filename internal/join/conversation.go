package join

import (
	"context"
	"errors"
	"io"
	"time"

	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	// interval is the least time between two batches to one peer: the first change goes at once, and those
	// that follow close behind go together.
	interval = 25 * time.Millisecond
	// again is how long what was refused waits before it is tried again though nothing is known to have
	// changed, and mending how long it waits for more where something has.
	again   = 5 * time.Second
	mending = 100 * time.Millisecond
)

// stream is one stream of zone sync, whichever side it is of.
type stream interface {
	Send(*wire.Frame) error
	Recv() (*wire.Frame, error)
}

// Count is told of every frame of a kind that goes over a stream, sent or received.
type Count func(kind string, sent bool, frame *wire.Frame)

// counted is a stream whose frames are told.
type counted struct {
	stream
	kind  string
	count Count
}

// Send implements stream.
func (c counted) Send(frame *wire.Frame) error {
	c.count(c.kind, true, frame)
	return c.stream.Send(frame)
}

// Recv implements stream.
func (c counted) Recv() (*wire.Frame, error) {
	frame, err := c.stream.Recv()
	if err == nil {
		c.count(c.kind, false, frame)
	}
	return frame, err
}

// peerKind is what a conversation about one kind with one peer rests on.
type peerKind struct {
	kind     resource.Descriptor
	own      zonesync.Side
	peer     kind.Owner
	logs     *logs
	receiver *zonesync.Receiver // outlives the streams; nil where nothing of the kind comes from the peer
	apply    func(context.Context, []zonesync.Item) []zonesync.Rejection
	list     func() []zonesync.StoredItem
	count    Count // nil: nobody counts

	// heard is called once the peer has said who it is, stored after something of it was, and progressed
	// whenever the stream may be further. All run in the conversation, and so does nudged, whenever the signal
	// nudge is raised.
	heard      func(*zonesync.Side)
	stored     func(c *conversation, items []zonesync.Item)
	progressed func(c *conversation)
	nudge      *wait.Broadcast
	nudged     func(c *conversation)
}

// conversation is one stream about one kind. Everything but run is called within it.
type conversation struct {
	peerKind
	stream  stream
	session *zonesync.Session
	sender  *zonesync.Sender // nil where nothing of the kind goes to the peer

	calls   chan func()   // from beside: results of what was begun
	ended   chan struct{} // closed when the stream has ended
	known   bool          // heard was called
	batch   time.Time     // when one was sent last
	synced  bool          // it was noted that the receiver is
	traffic StreamState   // what of it is counted here
	retry   <-chan time.Time
	retryAt time.Time
}

func newConversation(p peerKind, s stream) *conversation {
	if p.count != nil {
		s = counted{s, p.own.Kind, p.count}
	}
	c := &conversation{peerKind: p, stream: s, calls: make(chan func()), ended: make(chan struct{})}
	if w := way(p.kind, p.own.Owner, p.peer); w.Open() {
		c.sender = zonesync.NewSender(p.logs.kinds[p.own.Kind].log, w)
	}
	c.session = zonesync.NewSession(p.own, p.peer, c.sender, p.receiver)
	return c
}

// do has the conversation call f, unless it has ended.
func (c *conversation) do(f func()) {
	select {
	case c.calls <- f:
	case <-c.ended:
	}
}

// received is a frame, or why none follows.
type received struct {
	frame *wire.Frame
	err   error
}

// run speaks until the stream breaks, the peer breaks the rules of the protocol, or ctx ends.
func (c *conversation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(c.ended)
	frames := make(chan received)
	go c.listen(ctx, frames)
	own := c.logs.kinds[c.own.Kind]
	for {
		changed, mended, nudge := own.changed.Next(), c.logs.mended.Next(), c.nudge.Next()
		c.nudged(c)
		if err := c.speak(ctx); err != nil {
			return err
		}
		wake, pause := c.waits(changed)
		if c.receiver == nil || len(c.receiver.Rejected()) == 0 {
			mended = nil
		}
		select {
		case r := <-frames:
			if r.err != nil {
				return r.err
			}
			if err := c.step(r.frame); err != nil {
				return err
			}
		case f := <-c.calls:
			f()
		case <-wake:
		case <-pause:
		case <-nudge:
		case <-mended:
			c.retryIn(mending)
		case <-c.retry:
			c.retry = nil
			c.receiver.Retry()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *conversation) listen(ctx context.Context, frames chan<- received) {
	for {
		frame, err := c.stream.Recv()
		select {
		case frames <- received{frame, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// waits answers what ends the wait for something to send: a change, or the end of the interval since the last
// batch.
func (c *conversation) waits(changed <-chan struct{}) (wake <-chan struct{}, pause <-chan time.Time) {
	if c.sender == nil {
		return nil, nil
	}
	if rest := interval - time.Since(c.batch); rest > 0 {
		return nil, time.After(rest)
	}
	return changed, nil
}

func (c *conversation) step(frame *wire.Frame) error {
	if err := c.session.Step(frame); err != nil {
		return err
	}
	if b := frame.GetBatch(); b != nil {
		c.traffic.LastItem, c.traffic.ItemsReceived = time.Now(), c.traffic.ItemsReceived+uint64(len(b.Items))
	}
	if peer := c.session.Peer(); peer != nil && !c.known {
		c.known = true
		c.heard(peer)
	}
	return nil
}

// speak does whatever there is to do.
func (c *conversation) speak(ctx context.Context) error {
	ready, err := c.session.Ready()
	if err != nil {
		return err
	}
	for _, frame := range ready.Frames {
		if b := frame.GetBatch(); b != nil {
			c.batch = time.Now()
			c.traffic.LastItem, c.traffic.ItemsSent = c.batch, c.traffic.ItemsSent+uint64(len(b.Items))
		}
		if err := c.stream.Send(frame); errors.Is(err, io.EOF) {
			return nil // why the stream has ended is heard, not told to who sends
		} else if err != nil {
			return err
		}
	}
	if ready.List {
		c.receiver.Digest(c.list())
		return c.speak(ctx)
	}
	if ready.Apply != nil {
		go c.store(ctx, ready.Apply)
	}
	c.progressed(c)
	return nil
}

// store applies items beside the conversation.
func (c *conversation) store(ctx context.Context, a *zonesync.Apply) {
	refused := c.apply(ctx, a.Items)
	if ctx.Err() != nil {
		return
	}
	c.do(func() {
		c.receiver.Applied(a, refused)
		c.stored(c, a.Items)
		if len(refused) > 0 {
			c.retryIn(again)
		}
	})
}

// retryIn has what was refused tried again soon, unless it is anyway.
func (c *conversation) retryIn(d time.Duration) {
	if at := time.Now().Add(d); c.retry == nil || at.Before(c.retryAt) {
		c.retry, c.retryAt = time.After(d), at
	}
}
