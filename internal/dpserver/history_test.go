package dpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/state"
)

// issue returns a token of a Dataplane. Its signature is not verified here.
func issue(t *testing.T, mesh, name string) string {
	t.Helper()
	text, err := pki.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.ParseSigningKey(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := pki.Issue(key, "1", &pki.DataplaneClaims{Mesh: mesh, Name: name}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// historyOf returns a history where one Dataplane exists, and the time of which is given.
func historyOf(exists state.ProxyKey) (h *tokenHistory, now *time.Time) {
	now = new(time.Time)
	*now = time.Unix(1000, 0)
	h = newTokenHistory(func() time.Time { return *now }, func(key state.ProxyKey) bool { return key == exists })
	return h, now
}

func TestRejectedTokens(t *testing.T) {
	web, gone := state.ProxyKey{Mesh: "default", Name: "web"}, state.ProxyKey{Mesh: "default", Name: "gone"}
	forged, expired := errors.New("the signature is wrong"), fmt.Errorf("%w; make one", pki.ErrExpired)
	for _, test := range []struct {
		name, token string
		err         error
		of          state.ProxyKey
		noted       bool
	}{
		{"forged, of a Dataplane", issue(t, "default", "web"), forged, web, true},
		{"forged, of no Dataplane", issue(t, "default", "gone"), forged, gone, false},
		{"expired, of no Dataplane", issue(t, "default", "gone"), expired, gone, true},
		{"revoked, of no Dataplane", issue(t, "default", "gone"), fmt.Errorf("%w, by x", pki.ErrRevoked), gone, true},
		{"forged, without a name", issue(t, "default", ""), forged, state.ProxyKey{Mesh: "default"}, false},
		{"expired, without a name", issue(t, "default", ""), expired, state.ProxyKey{Mesh: "default"}, true},
		{"garbage", "a.b.c", forged, state.ProxyKey{}, false},
	} {
		h, now := historyOf(web)
		h.noteToken(context.Background(), test.token, test.err)
		h.noteToken(context.Background(), test.token, test.err)
		got := h.all[test.of]
		want := credential{}
		if test.noted {
			want = credential{rejected: Rejection{At: *now, Attempts: 2, From: "unknown", Reason: test.err.Error()},
				unauthenticated: true}
		}
		if got != want || !test.noted && len(h.all) > 0 {
			t.Errorf("%s: %+v of %v, want %+v", test.name, got, h.all, want)
		}
	}
}

func TestDeniedProxies(t *testing.T) {
	web := state.ProxyKey{Mesh: "default", Name: "web"}
	h, now := historyOf(web)
	for _, unrelated := range []codes.Code{codes.Unavailable, codes.NotFound} {
		h.noteDenied(context.Background(), web, status.Error(unrelated, "of the store"))
	}
	gone := state.ProxyKey{Mesh: "default", Name: "gone"}
	h.noteDenied(context.Background(), gone, status.Error(codes.PermissionDenied, ""))
	if len(h.all) > 0 {
		t.Errorf("what is no rejection of a proxy: %v", h.all)
	}
	h.noteDenied(context.Background(), web, status.Error(codes.PermissionDenied, strings.Repeat("x", 1000)))
	want := credential{rejected: Rejection{At: *now, Attempts: 1, From: "unknown",
		Reason: strings.Repeat("x", maxReason)}}
	if got := h.all[web]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	claims := &pki.DataplaneClaims{}
	claims.ExpiresAt = nil
	h.noteAccepted(web, &caller{dataplane: claims})
	if got := h.all[web]; got != (credential{}) {
		t.Errorf("after a valid token: %+v", got)
	}
}

func TestTokenHistoryIsBounded(t *testing.T) {
	h, now := historyOf(state.ProxyKey{})
	expired := func(i int) state.ProxyKey { return state.ProxyKey{Mesh: "default", Name: fmt.Sprint(i)} }
	for i := range maxCredentials + 1 {
		h.noteRejected(context.Background(), expired(i), "", true)
	}
	if n := len(h.all); n != maxCredentials {
		t.Errorf("%d proxies are known, want %d", n, maxCredentials)
	}
	*now = now.Add(unknownAge + 1)
	h.noteRejected(context.Background(), expired(maxCredentials), "", true)
	if _, known := h.all[expired(maxCredentials)]; !known || len(h.all) != 1 {
		t.Errorf("%d proxies are known after a time, want the last one", len(h.all))
	}
}

func TestTokensThatExpire(t *testing.T) {
	now := time.Unix(100_000, 0)
	for left, want := range map[time.Duration]bool{0: true, 6*time.Minute - 1: true, 6 * time.Minute: false} {
		is := credential{notBefore: now.Add(left - time.Hour), expires: now.Add(left)}
		if got := is.expiresSoon(now); got != want {
			t.Errorf("with %s of an hour left: %t", left, got)
		}
	}
	if is := (credential{}); is.expiresSoon(now) {
		t.Error("the token of a Pod expires")
	}
}
