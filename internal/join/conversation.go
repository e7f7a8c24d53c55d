package join

import (
	"context"
	"errors"
	"io"
	"time"

	"weft/internal/mirror"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	// interval is the minimum time between two batches to one peer. The first change is sent at once, and changes
	// shortly after it are sent together.
	interval = 25 * time.Millisecond
	// retryInterval is the time after which rejected items are tried again without a known change. retryAfterChange is
	// the time in which further changes are collected after one.
	retryInterval    = 5 * time.Second
	retryAfterChange = 100 * time.Millisecond
)

// stream is a stream of zone sync, of either side.
type stream interface {
	Send(*wire.Frame) error
	Recv() (*wire.Frame, error)
}

// Count is called with every frame that is sent or received.
type Count func(kind string, sent bool, frame *wire.Frame)

// countingStream calls a Count for its frames.
type countingStream struct {
	stream
	kind  string
	count Count
}

// Send implements stream.
func (c countingStream) Send(frame *wire.Frame) error {
	c.count(c.kind, true, frame)
	return c.stream.Send(frame)
}

// Recv implements stream.
func (c countingStream) Recv() (*wire.Frame, error) {
	frame, err := c.stream.Recv()
	if err == nil {
		c.count(c.kind, false, frame)
	}
	return frame, err
}

// peerKind has the dependencies of a conversation about one kind with one peer.
type peerKind struct {
	kind     resource.Descriptor
	own      zonesync.Side
	peer     kind.Owner
	logs     *logs
	receiver *zonesync.Receiver // outlives the streams; nil if the peer sends nothing of the kind
	apply    func(context.Context, []zonesync.Item) (mirror.Rows, []zonesync.Rejection)
	list     func() []zonesync.StoredItem
	count    Count // nil: frames are not counted

	// heard is called once the peer has sent its hello, stored whenever the receiver has a new position, with the rows
	// of the items before it, and progressed after each step. All are called in the conversation, as is nudged after
	// each signal of nudge.
	heard      func(*zonesync.Side)
	stored     func(c *conversation, rows mirror.Rows)
	progressed func(c *conversation)
	nudge      *wait.Broadcast
	nudged     func(c *conversation)
}

// conversation is one stream for one kind. All methods but run are called in its goroutine.
type conversation struct {
	peerKind
	stream  stream
	session *zonesync.Session
	sender  *zonesync.Sender // nil if nothing of the kind is sent to the peer

	calls    chan func()       // results from other goroutines
	ended    chan struct{}     // closed when the stream has ended
	known    bool              // heard was called
	batch    time.Time         // when the last batch was sent
	synced   bool              // all is stored that the peer had when the stream began
	position zonesync.Position // of the receiver, as last reported to stored
	traffic  StreamState       // the counts of this stream
	retry    <-chan time.Time
	retryAt  time.Time
}

func newConversation(p peerKind, s stream) *conversation {
	if p.count != nil {
		s = countingStream{s, p.own.Kind, p.count}
	}
	c := &conversation{peerKind: p, stream: s, calls: make(chan func()), ended: make(chan struct{})}
	if w := syncDirection(p.kind, p.own.Owner, p.peer); w.Open() {
		c.sender = zonesync.NewSender(p.logs.kinds[p.own.Kind].log, w)
	}
	c.session = zonesync.NewSession(p.own, p.peer, c.sender, p.receiver)
	return c
}

// call runs f in the conversation, unless it has ended.
func (c *conversation) call(f func()) {
	select {
	case c.calls <- f:
	case <-c.ended:
	}
}

// received is a frame, or the error that ended the stream.
type received struct {
	frame *wire.Frame
	err   error
}

// run sends and receives until the stream breaks, the peer violates the protocol, or ctx ends.
func (c *conversation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(c.ended)
	frames := make(chan received)
	go c.receiveFrames(ctx, frames)
	own := c.logs.kinds[c.own.Kind]
	for {
		changed, mended, nudge := own.changed.Next(), c.logs.dependencyChanged.Next(), c.nudge.Next()
		c.nudged(c)
		if err := c.sendAll(ctx); err != nil {
			return err
		}
		wake, pause := c.nextWake(changed)
		if c.receiver == nil || len(c.receiver.Rejections()) == 0 {
			mended = nil
		}
		select {
		case r := <-frames:
			if r.err != nil {
				return r.err
			}
			if err := c.handleFrame(r.frame); err != nil {
				return err
			}
		case f := <-c.calls:
			f()
		case <-wake:
		case <-pause:
		case <-nudge:
		case <-mended:
			c.retryIn(retryAfterChange)
		case <-c.retry:
			c.retry = nil
			c.receiver.Retry()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *conversation) receiveFrames(ctx context.Context, frames chan<- received) {
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

// nextWake returns what ends the wait for something to send: a change, or the end of the interval since the last batch.
func (c *conversation) nextWake(changed <-chan struct{}) (wake <-chan struct{}, pause <-chan time.Time) {
	if c.sender == nil {
		return nil, nil
	}
	if rest := interval - time.Since(c.batch); rest > 0 {
		return nil, time.After(rest)
	}
	return changed, nil
}

func (c *conversation) handleFrame(frame *wire.Frame) error {
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

// sendAll sends everything that is due.
func (c *conversation) sendAll(ctx context.Context) error {
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
			return nil // the receiving goroutine has the reason why the stream ended
		} else if err != nil {
			return err
		}
	}
	if ready.List {
		c.receiver.Digest(c.list())
		return c.sendAll(ctx)
	}
	if ready.Apply != nil {
		go c.store(ctx, ready.Apply)
	}
	if c.receiver != nil && c.receiver.Position() != c.position { // without an item
		c.reportStored(nil)
	}
	c.progressed(c)
	return nil
}

// store applies items in a goroutine of its own.
func (c *conversation) store(ctx context.Context, a *zonesync.Apply) {
	rows, rejected := c.apply(ctx, a.Items)
	if ctx.Err() != nil {
		return
	}
	c.call(func() {
		c.receiver.NoteApplied(a, rejected)
		c.reportStored(rows)
		if len(rejected) > 0 {
			c.retryIn(retryInterval)
		}
	})
}

// reportStored reports rows, and the receiver's position that includes them.
func (c *conversation) reportStored(rows mirror.Rows) {
	c.position = c.receiver.Position()
	c.stored(c, rows)
}

// retryIn sets the time of the next attempt to store rejected items, unless an earlier one is set.
func (c *conversation) retryIn(d time.Duration) {
	if at := time.Now().Add(d); c.retry == nil || at.Before(c.retryAt) {
		c.retry, c.retryAt = time.After(d), at
	}
}
