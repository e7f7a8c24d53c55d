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

	"weft/internal/state"
	"weft/kind"
)

// Bounds of registrations. (ADR 32) A fleet of 10,000 proxies that restarts with one token and one address registers
// Dataplanes that are stored already: that is one attempt each, and all of them are accepted at once. A fleet of 10,000
// new Dataplanes with one token is accepted within 25 s.
const (
	// attemptBurst and attemptRate, per second, bound the registrations with one token. A source address has twice as
	// many.
	attemptBurst, attemptRate = 20_000, 1000
	// attemptBytes is the document size of one attempt; a larger document costs several attempts.
	attemptBytes = 8 << 10
	// changeBurst and changeRate, per second, bound the registrations that create or change a Dataplane.
	changeBurst, changeRate = 5000, 200
	// signBurst and signRate, per second, bound the requests for one certificate of one proxy, with any token. An agent
	// renews a certificate once a second at most, and a ZoneEgress has several certificates.
	signBurst, signRate = 60, 5
	// reportBurst and reportRate, per second, bound the changed reports of one proxy that are read: each may change the
	// endpoints of all its services for all their clients.
	reportBurst, reportRate = 30, 1
	// reviewBurst and reviewRate, per second, bound half of the requests to the API server that one source address
	// causes with rejected tokens of Pods, or of Pods without a Dataplane. An accepted token costs nothing.
	reviewBurst, reviewRate = 50, 5
	// sourceFactor multiplies both bounds for a source address.
	sourceFactor = 2

	// MaxSilent is the maximum of registered proxies of one token that have not opened a session yet.
	MaxSilent = 1000
	// MaxRegistered is the maximum of registered proxies of one token.
	MaxRegistered = 20_000

	// silentPause is how long an agent waits where its token has reached MaxSilent or MaxRegistered.
	silentPause = 5 * time.Second
	// maxPause is the longest wait that a response asks of an agent.
	maxPause = time.Minute
)

// floodBounds bounds the registrations of each token and each source address.
type floodBounds struct {
	now               func() time.Time
	attempts, changes buckets
	signs, reviews    buckets
	reports           buckets
}

func newFlood(now func() time.Time) *floodBounds {
	return &floodBounds{now: now, attempts: newBuckets(attemptBurst, attemptRate),
		changes: newBuckets(changeBurst, changeRate), signs: newBuckets(signBurst, signRate),
		reviews: newBuckets(reviewBurst, reviewRate), reports: newBuckets(reportBurst, reportRate)}
}

// rateKey has the buckets that a request is charged to: the token and the source of a registration, or a proxy's
// secret.
type rateKey struct {
	token  string // its ID
	source string // an IPv4 address, or an IPv6 network
	secret string // of a certificate request: the proxy and its secret; of a report: the proxy; else empty
}

func (s *Server) rateKeyOf(ctx context.Context, c *caller) rateKey {
	return rateKey{token: c.tokenID(), source: sourceOf(ctx)}
}

// tokenID returns the ID of the caller's token; for a token without one, its claims.
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

// sourceOf returns the source IP address of a call. For IPv6 it is the network of 64 bits, since one host may have all
// of it.
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

// attempt charges a registration before its document is parsed; a large document costs several. It returns
// ResourceExhausted above the bound.
func (f *floodBounds) attempt(p rateKey, bytes int) error {
	return f.attempts.charge(p, f.now(), 1+bytes/attemptBytes, "registrations")
}

// change charges a registration that creates or changes a Dataplane.
func (f *floodBounds) change(p rateKey) error {
	return f.changes.charge(p, f.now(), 1, "registrations that create or change a Dataplane")
}

// sign charges a request for the certificate of a proxy's secret.
func (f *floodBounds) sign(key state.ProxyKey, secret string) error {
	p := rateKey{secret: key.Resource().String() + " " + secret}
	return f.signs.charge(p, f.now(), 1, "certificate requests")
}

// report charges a changed report of a proxy, and returns the time after which the next one is read.
func (f *floodBounds) report(key state.ProxyKey) (pause time.Duration) {
	return max(reportPause, f.reports.take(rateKey{secret: key.Resource().String()}, f.now()))
}

// mayReview returns ResourceExhausted where a source address has caused too many requests to the API server.
func (f *floodBounds) mayReview(from rateKey) error {
	if f.reviews.hasTokens(from, f.now()) {
		return nil
	}
	return f.reviews.charge(from, f.now(), 1, "requests with tokens that are not valid")
}

// noteReview charges a request to the API server to its source address.
func (f *floodBounds) noteReview(from rateKey) { _ = f.reviews.charge(from, f.now(), 1, "") }

// noteToken sets the token that registers a proxy in its row, and returns whether that changes the row. A token other
// than the stored one is charged as a change.
func (f *floodBounds) noteToken(row *kind.DataplaneListenerStatus, p rateKey) (changes bool, err error) {
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

// mayChange returns whether change would succeed now.
func (f *floodBounds) mayChange(p rateKey) bool { return f.changes.hasTokens(p, f.now()) }

// exhausted returns ResourceExhausted with the time after which the agent may try again.
func exhausted(pause time.Duration, format string, args ...any) error {
	pause = max(time.Second, pause.Round(time.Second))
	s := status.New(codes.ResourceExhausted, fmt.Sprintf(format, args...)+fmt.Sprintf("; try again in %s", pause))
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(pause)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// buckets are the token buckets of all payers.
type buckets struct {
	burst, rate float64

	mu    sync.Mutex
	all   map[rateKey]*bucket // each has one field of its key
	swept time.Time           // when full buckets were removed last
}

// bucket is one token bucket. A full bucket is not stored.
type bucket struct {
	level float64
	at    time.Time
	turn  time.Time // when the last rejected caller may try again
}

func newBuckets(burst, rate float64) buckets {
	return buckets{burst: burst, rate: rate, all: map[rateKey]*bucket{}}
}

// sweepAbove is the number of buckets above which full ones are removed.
const sweepAbove = 10_000

// sweepPause is the minimum time between two sweeps: a sweep reads every bucket.
const sweepPause = 5 * time.Second

// bucketOf returns the present state of a bucket, and its rate. The caller holds the lock.
func (b *buckets) bucketOf(key rateKey, now time.Time) (found *bucket, rate float64) {
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

// bucketKeys returns the keys of the buckets that pay: the token's and the source's, or the secret's.
func (p rateKey) bucketKeys() []rateKey {
	if p.secret != "" {
		return []rateKey{p}
	}
	var keys []rateKey
	if p.token != "" {
		keys = append(keys, rateKey{token: p.token})
	}
	if p.source != "" {
		keys = append(keys, rateKey{source: p.source})
	}
	return keys
}

func (b *buckets) hasTokens(p rateKey, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range p.bucketKeys() {
		if bucket, _ := b.bucketOf(key, now); bucket.level < 1 {
			return false
		}
	}
	return true
}

// take takes one token from the bucket of a secret, if need be before it is there. It returns the time until it is.
func (b *buckets) take(key rateKey, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket, rate := b.bucketOf(key, now)
	bucket.level--
	return time.Duration(-bucket.level / rate * float64(time.Second))
}

// charge takes the cost from each bucket, or from none if one of them is empty. Each rejected caller is given a time of
// its own at the rate of the bucket, so that callers do not all return at once.
func (b *buckets) charge(p rateKey, now time.Time, cost int, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := p.bucketKeys()
	for _, key := range keys {
		bucket, rate := b.bucketOf(key, now)
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
		return exhausted(bucket.turn.Sub(now), "%s has made too many %s: at most %.0f a second are read", who, what,
			rate)
	}
	for _, key := range keys {
		bucket, _ := b.bucketOf(key, now)
		bucket.level -= float64(cost)
	}
	return nil
}
