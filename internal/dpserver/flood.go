package dpserver

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"weft/internal/graph"
	"weft/kind"
)

// Bounds of registrations. (ADR 32) A fleet of 10,000 proxies that restarts behind one token and one address registers
// Dataplanes that are stored already: that is one attempt each, and all of them are served at once. A fleet of 10,000
// new Dataplanes with one token is admitted within 25 s.
const (
	// attemptBurst and attemptRate, a second, bound the registrations of one token, whatever they change; a source
	// address has twice as many.
	attemptBurst, attemptRate = 20_000, 1000
	// attemptBytes is how large the document of one attempt is; a larger one is charged as several.
	attemptBytes = 8 << 10
	// changeBurst and changeRate, a second, bound those that create or change a Dataplane.
	changeBurst, changeRate = 5000, 200
	// signBurst and signRate, a second, bound the requests for one certificate of one proxy, whatever their tokens: an
	// agent renews a certificate once a second at most, and a ZoneEgress has several certificates.
	signBurst, signRate = 60, 5
	// sourceFactor is how much of both a source address has.
	sourceFactor = 2

	// MaxSilent is how many registered proxies of one token may have no agent: none that has opened a session yet.
	MaxSilent = 1000
	// MaxRegistered is how many registered proxies one token has at most.
	MaxRegistered = 20_000

	// silentPause is how long an agent waits where its token has MaxSilent or MaxRegistered.
	silentPause = 5 * time.Second
	// maxPause is the longest wait that an agent is given.
	maxPause = time.Minute
)

// flood bounds the registrations of each token and each source address.
type flood struct {
	now               func() time.Time
	attempts, changes buckets
	signs             buckets
}

func newFlood(now func() time.Time) *flood {
	return &flood{now: now, attempts: newBuckets(attemptBurst, attemptRate), changes: newBuckets(changeBurst, changeRate), signs: newBuckets(signBurst, signRate)}
}

// payer is what a request is charged to: the token and the source of a registration, or the secret of a proxy.
type payer struct {
	token  string // its ID
	source string // an IPv4 address, or a network of IPv6
	secret string // of a proxy, which a certificate is asked for; empty for a registration
}

func (s *Server) payer(ctx context.Context, c *caller) payer {
	return payer{token: c.tokenID(), source: sourceOf(ctx)}
}

// tokenID is the ID of the caller's token, or what the token says where it has none.
func (c *caller) tokenID() string {
	_, id := c.proof()
	switch {
	case id != "":
		return id
	case c.zone != nil:
		return "zone/" + c.zone.Zone
	}
	return "dataplane/" + c.dataplane.Mesh + "/" + c.dataplane.Name
}

// sourceOf is the IP address that a call comes from; of IPv6 its network of 64 bits, which one host may have as a whole.
func sourceOf(ctx context.Context) string {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		if ip = ip.WithZone("").Unmap(); ip.Is6() {
			return netip.PrefixFrom(ip, 64).Masked().String()
		}
		return ip.String()
	}
	return host
}

// attempt charges a registration before anything of it is read, and a large document as several. It returns
// ResourceExhausted beyond the bound.
func (f *flood) attempt(p payer, bytes int) error {
	return f.attempts.charge(p, f.now(), 1+bytes/attemptBytes, "registrations")
}

// change charges a registration that creates or changes a Dataplane.
func (f *flood) change(p payer) error {
	return f.changes.charge(p, f.now(), 1, "registrations that create or change a Dataplane")
}

// sign charges a request for the certificate of a proxy's secret.
func (f *flood) sign(key graph.ProxyKey, secret string) error {
	p := payer{secret: key.Resource().String() + " " + secret}
	return f.signs.charge(p, f.now(), 1, "certificate requests")
}

// register notes in the row of a proxy which token registers it, and reports whether that changes the row. Another token
// than before is charged as a change.
func (f *flood) register(row *kind.DataplaneListenerStatus, p payer) (changes bool, err error) {
	if row.Registered && row.Token == p.token {
		return false, nil
	}
	if row.Registered {
		if err := f.change(p); err != nil {
			return false, err
		}
	}
	row.Registered, row.Token = true, p.token
	return true, nil
}

// mayChange reports whether change would succeed now.
func (f *flood) mayChange(p payer) bool { return f.changes.has(p, f.now()) }

// exhausted is ResourceExhausted with how long the agent is to wait.
func exhausted(pause time.Duration, format string, args ...any) error {
	pause = max(time.Second, pause.Round(time.Second))
	s := status.New(codes.ResourceExhausted, fmt.Sprintf(format, args...)+fmt.Sprintf("; try again in %s", pause))
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(pause)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// buckets hold a token bucket for each token and each source address.
type buckets struct {
	burst, rate float64

	mu    sync.Mutex
	all   map[payer]*bucket // each has one field of its key
	swept time.Time         // when full ones were dropped last
}

// bucket is full where it is not stored.
type bucket struct {
	level float64
	at    time.Time
	turn  time.Time // when the last one that was sent away may come back
}

func newBuckets(burst, rate float64) buckets {
	return buckets{burst: burst, rate: rate, all: map[payer]*bucket{}}
}

// sweepAbove is the number of buckets above which full ones are dropped.
const sweepAbove = 10_000

// sweepPause is how long after a sweep the next one may be: a sweep looks at every bucket.
const sweepPause = 5 * time.Second

// of returns a bucket as it is now, and its rate. The caller holds the lock.
func (b *buckets) of(key payer, now time.Time) (found *bucket, rate float64) {
	burst, rate := b.burst, b.rate
	if key.source != "" {
		burst, rate = sourceFactor*burst, sourceFactor*rate
	}
	found = b.all[key]
	if found == nil {
		if len(b.all) > sweepAbove && now.Sub(b.swept) >= sweepPause {
			b.swept = now
			b.sweep(now)
		}
		found = &bucket{level: burst, at: now}
		b.all[key] = found
	}
	found.level = math.Min(burst, found.level+rate*now.Sub(found.at).Seconds())
	found.at = now
	return found, rate
}

func (b *buckets) sweep(now time.Time) {
	for key, old := range b.all {
		if now.Sub(old.at).Seconds() > sourceFactor*b.burst/b.rate {
			delete(b.all, key)
		}
	}
}

// keys are those of the buckets that pay: the token's and the source's, or the secret's.
func (p payer) keys() []payer {
	if p.secret != "" {
		return []payer{p}
	}
	keys := []payer{{token: p.token}}
	if p.source != "" {
		keys = append(keys, payer{source: p.source})
	}
	return keys
}

func (b *buckets) has(p payer, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range p.keys() {
		if bucket, _ := b.of(key, now); bucket.level < 1 {
			return false
		}
	}
	return true
}

// charge takes the cost from each bucket, or from none where one is empty. Those that are sent away are each given a turn
// of their own, at the rate of the bucket, so that they do not come back together.
func (b *buckets) charge(p payer, now time.Time, cost int, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := p.keys()
	for _, key := range keys {
		bucket, rate := b.of(key, now)
		if bucket.level >= float64(cost) {
			continue
		}
		if bucket.turn.Before(now) {
			bucket.turn = now
		}
		bucket.turn = bucket.turn.Add(time.Duration(float64(time.Second) / rate))
		if bucket.turn.Sub(now) > maxPause {
			bucket.turn = now.Add(maxPause)
		}
		who := "the token"
		switch {
		case key.source != "":
			who = "the address " + key.source
		case key.secret != "":
			who = "the secret of " + key.secret
		}
		return exhausted(bucket.turn.Sub(now), "%s has made too many %s: at most %.0f a second are read", who, what, rate)
	}
	for _, key := range keys {
		bucket, _ := b.of(key, now)
		bucket.level -= float64(cost)
	}
	return nil
}
