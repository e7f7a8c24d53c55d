package dpserver

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/replica"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// TestAFleetThatRestartsIsNotThrottled registers 10,000 agents with one token and one address, as behind a NAT.
func TestAFleetThatRestartsIsNotThrottled(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	fleet := rateKey{token: "fleet", source: "10.0.0.1"}
	for i := range 10_000 {
		if err := f.attempt(fleet, 2000); err != nil {
			t.Fatalf("registration %d of a restart: %v", i, err)
		}
	}
	if !f.mayChange(fleet) {
		t.Error("registrations that change nothing are charged as changes")
	}
}

// TestANewFleetIsAdmittedInTime: rejected agents return at the time in their response, and are accepted then.
func TestANewFleetIsAdmittedInTime(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	fleet := rateKey{token: "fleet", source: "10.0.0.1"}
	back := map[time.Time]int{c.at: 10_000}
	begin, tries := c.at, 0
	for len(back) > 0 {
		for back[c.at] == 0 {
			c.at = c.at.Add(time.Second)
		}
		waiting := back[c.at]
		delete(back, c.at)
		for range waiting {
			tries++
			if err := f.change(fleet); err != nil {
				back[c.at.Add(retryAfter(t, err))]++
			}
		}
	}
	if took := c.at.Sub(begin); took > 30*time.Second || tries > 17_000 {
		t.Errorf("10,000 new Dataplanes were registered after %s, by %d registrations; want 30 s at most, and few "+
			"that come in vain", took, tries)
	}
}

func TestOneTokenDoesNotSpendWhatOthersHave(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	for f.attempt(rateKey{token: "stolen", source: "10.0.0.9"}, 2000) == nil {
	}
	err := f.attempt(rateKey{token: "stolen", source: "10.0.0.9"}, 2000)
	if status.Code(err) != codes.ResourceExhausted || retryAfter(t, err) < time.Second {
		t.Errorf("a token beyond its bound gets %v", err)
	}
	if err := f.attempt(rateKey{token: "another", source: "10.0.0.2"}, 2000); err != nil {
		t.Errorf("another token at another address: %v", err)
	}
	if err := f.attempt(rateKey{token: "another", source: "10.0.0.9"}, 2000); err != nil {
		t.Errorf("another token at the same address: %v", err)
	}
	for i := range 100 {
		for f.attempt(rateKey{token: fmt.Sprint(i), source: "10.0.0.9"}, 2000) == nil && i < 3 {
		}
	}
	if f.attempt(rateKey{token: "one more", source: "10.0.0.9"}, 2000) == nil {
		t.Error("an address with many tokens has no bound")
	}
}

func retryAfter(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	t.Fatalf("%v does not say when to try again", err)
	return 0
}

// thousands formats numbers as the documentation does: 20,000.
type thousands struct{}

func (thousands) Sprintf(format string, numbers ...int) string {
	var words []any
	for _, n := range numbers {
		word := fmt.Sprint(n)
		for i := len(word) - 3; i > 0; i -= 3 {
			word = word[:i] + "," + word[i:]
		}
		words = append(words, word)
	}
	return fmt.Sprintf(strings.ReplaceAll(format, "%d", "%s"), words...)
}

// TestTheBoundsAreDocumented: docs/operations/bounds.md has the numbers of the code.
func TestTheBoundsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	numbers := thousands{}
	for _, line := range []string{
		numbers.Sprintf("%d at once, then %d a second; each %d KiB", attemptBurst, attemptRate, attemptBytes>>10),
		numbers.Sprintf("%d at once, then %d a second |", changeBurst, changeRate),
		numbers.Sprintf("never opened a session | %d |", MaxSilent),
		numbers.Sprintf("registered proxies of one token | %d |", MaxRegistered),
		numbers.Sprintf("in a zone | %d |", service.MaxGenerated),
		numbers.Sprintf("generated MeshService | %d |", kind.MaxServicePorts),
		numbers.Sprintf(
			"%d listeners of a report, %d SPIFFE IDs of a listener, %d bytes of one, %d KiB of a certificate request",
			WireBounds["weft.agent.v1.Report.ready_listeners"].Items,
			WireBounds["weft.agent.v1.ReadyListener.spiffe_ids"].Items,
			WireBounds["weft.agent.v1.ReadyListener.spiffe_ids"].Bytes,
			WireBounds["weft.agent.v1.SignRequest.request"].Bytes>>10),
		numbers.Sprintf("one certificate of one proxy | %d at once, then %d a second |", signBurst, signRate),
		numbers.Sprintf("that are read | 1 in %d ms; those that differ from the last, of one proxy: %d at once, then "+
			"%d a second |",
			int(reportPause.Milliseconds()), reportBurst, reportRate),
		numbers.Sprintf("with each inbound of their listener | %d bytes |", maxListenerStatusBytes),
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/operations/bounds.md lacks %q", line)
		}
	}
}

// TestBucketsAreSweptRarely: not every new key sweeps all buckets.
func TestBucketsAreSweptRarely(t *testing.T) {
	begin := time.Unix(1000, 0)
	b := newBuckets(attemptBurst, attemptRate)
	for i := range sweepAbove + 1 {
		b.bucketOf(rateKey{token: fmt.Sprint(i)}, begin)
	}
	full := begin.Add(time.Duration(sourceFactor * attemptBurst / attemptRate * float64(time.Second)))
	for _, c := range []struct {
		at   time.Time
		want int
	}{
		{full.Add(-time.Second), sweepAbove + 2}, // swept without a full bucket
		{full.Add(time.Second), sweepAbove + 3},  // too soon after that
		{full.Add(sweepPause), 3},
	} {
		b.bucketOf(rateKey{token: c.at.String()}, c.at)
		if len(b.all) != c.want {
			t.Errorf("%s after the first ones there are %d buckets, want %d", c.at.Sub(begin), len(b.all), c.want)
		}
	}
}

// TestASourceIsANetworkOfIPv6: a host has a whole /64.
func TestASourceIsANetworkOfIPv6(t *testing.T) {
	for address, want := range map[string]string{
		"[2001:db8:1:2:3:4:5:6]:1234": "2001:db8:1:2::/64",
		"[2001:db8:1:2::7]:1":         "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":            "fe80::/64",
		"[::ffff:10.0.0.1]:1":         "10.0.0.1",
		"10.0.0.1:1":                  "10.0.0.1",
	} {
		ctx := grpcpeer.NewContext(t.Context(),
			&grpcpeer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))})
		if got := sourceOf(ctx); got != want {
			t.Errorf("the source of %s is %s, want %s", address, got, want)
		}
	}
}

// TestACallOfARevokedTokenIsClosed: the token was revoked after it was verified, and before the call was tracked.
func TestACallOfARevokedTokenIsClosed(t *testing.T) {
	signing, err := pki.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	realm := pki.DataplaneRealm("default")
	secrets := map[resource.Key][]byte{realm.SigningKey("1"): signing}
	s := New(Config{Instance: replica.NewSingle(replica.Config{ID: "cp-1"}),
		Keys: pki.NewKeyring(func(key resource.Key) ([]byte, bool) { data, ok := secrets[key]; return data, ok }),
		Log:  slog.New(slog.DiscardHandler)})
	key, err := pki.ParseSigningKey(signing)
	if err != nil {
		t.Fatal(err)
	}
	claims := &pki.DataplaneClaims{Mesh: "default", Name: "web-1"}
	token, err := pki.Issue(key, "1", claims, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.tokenOf(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	var closed error
	s.trackCall(c, state.ProxyKey{}, func(err error) { closed = err })()
	if closed != nil {
		t.Errorf("the call of a valid token is closed: %v", closed)
	}
	secrets[realm.Revocations()] = []byte(claims.ID)
	s.trackCall(c, state.ProxyKey{}, func(err error) { closed = err })()
	if status.Code(closed) != codes.Unauthenticated {
		t.Errorf("the call of a revoked token is closed with %v", closed)
	}
}

// TestTokensThatTakeTurnsAreCharged: each registration with another token is a write, though the Dataplane does not
// change.
func TestTokensThatTakeTurnsAreCharged(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	row := &kind.DataplaneListenerStatus{}
	one, other := rateKey{token: "one"}, rateKey{token: "other"}
	for i := range 2 * changeBurst {
		for _, p := range []rateKey{one, other} {
			if _, err := f.noteToken(row, p); err != nil {
				if status.Code(err) != codes.ResourceExhausted || i < changeBurst {
					t.Fatalf("registration %d of each token: %v, want ResourceExhausted after %d", i, err, changeBurst)
				}
				return
			}
		}
		if changes, err := f.noteToken(row, other); changes || err != nil {
			t.Fatalf("a registration with the same token changes the row (%t): %v", changes, err)
		}
	}
	t.Error("two tokens write without a bound")
}

// TestReportsThatDifferAreBounded: a proxy whose readiness flaps has a bound of its own, which fills again.
func TestReportsThatDifferAreBounded(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	web, api := state.ProxyKey{Type: kind.DataplaneProxy, Mesh: "default", Name: "web-1"},
		state.ProxyKey{Type: kind.DataplaneProxy, Mesh: "default", Name: "api-1"}
	for i := range reportBurst {
		if pause := f.report(web); pause != reportPause {
			t.Fatalf("report %d: a pause of %s, want %s", i, pause, reportPause)
		}
	}
	for range 100 {
		pause := f.report(web)
		if pause != time.Second/reportRate {
			t.Fatalf("a pause of %s, want a second", pause)
		}
		c.at = c.at.Add(pause)
	}
	if pause := f.report(api); pause != reportPause {
		t.Errorf("another proxy pauses for %s", pause)
	}
	c.at = c.at.Add(time.Minute)
	if pause := f.report(web); pause != reportPause {
		t.Errorf("after a minute, a pause of %s", pause)
	}
}

// TestCertificateRequestsAreBounded: each certificate has its own bound, above the rate of any agent.
func TestCertificateRequestsAreBounded(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	f := newFlood(c.now)
	web, api := state.ProxyKey{Type: kind.DataplaneProxy, Mesh: "default", Name: "web-1"},
		state.ProxyKey{Type: kind.DataplaneProxy, Mesh: "default", Name: "api-1"}
	for range 3600 {
		if err := f.sign(api, identity.IdentitySecret); err != nil {
			t.Fatalf("an agent that renews once a second: %v", err)
		}
		c.at = c.at.Add(time.Second)
	}
	for i := range signBurst {
		if err := f.sign(web, identity.IdentitySecret); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	err := f.sign(web, identity.IdentitySecret)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(status.Convert(err).Message(),
		"Dataplane default/web-1") {
		t.Fatalf("a request beyond the bound: %v", err)
	}
	if err := f.sign(web, "identity_other"); err != nil {
		t.Errorf("another certificate of the proxy: %v", err)
	}
	c.at = c.at.Add(retryAfter(t, err))
	if err := f.sign(web, identity.IdentitySecret); err != nil {
		t.Errorf("a request at the time that was given: %v", err)
	}
}
