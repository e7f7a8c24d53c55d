package identity_test

import (
	"crypto/rsa"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"weft/internal/identity"
	"weft/kind"
)

// signingKey is made once: RSA keys are slow to make.
var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	text, err := identity.NewSigningKey()
	if err != nil {
		panic(err)
	}
	key, err := identity.ParseSigningKey(text)
	if err != nil {
		panic(err)
	}
	return key
})

// keys has key 1 of the mesh default and nothing else.
func keys(mesh, kid string) (*rsa.PublicKey, bool) {
	if mesh != "default" || kid != "1" {
		return nil, false
	}
	return &signingKey().PublicKey, true
}

func issue(t testing.TB, kid string, claims identity.Claims) string {
	t.Helper()
	token, err := identity.Issue(signingKey(), kid, claims, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestATokenSaysWhatItWasMadeFor(t *testing.T) {
	want := identity.Claims{Name: "web-1", Mesh: "default", Tags: map[string][]string{"kuma.io/service": {"web", "api"}}, Type: "dataplane", Workload: "web"}
	got, err := identity.Verify(issue(t, "1", want), keys, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVerifyRefuses(t *testing.T) {
	good := issue(t, "1", identity.Claims{Mesh: "default"})
	raw := func(method jwt.SigningMethod, key any, kid any, claims jwt.MapClaims) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = kid
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	valid := func() jwt.MapClaims { return jwt.MapClaims{"Mesh": "default", "exp": now.Add(time.Hour).Unix()} }
	with := func(name string, value any) jwt.MapClaims {
		claims := valid()
		claims[name] = value
		return claims
	}
	for _, c := range []struct {
		name, token string
		at          time.Time
		want        string
	}{
		{"nothing", "", now, "not a dataplane token"},
		{"garbage", "a.b.c", now, "not a dataplane token"},
		{"after its end", good, now.Add(2 * time.Hour), "has expired"},
		{"before its begin", good, now.Add(-time.Hour), "not valid yet"},
		{"another payload", swapPayload(good, `{"Mesh":"default","Name":"admin","exp":9999999999}`), now, "signature"},
		{"an unsigned one", raw(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "1", valid()), now, "signature"},
		{"the public key taken for a shared secret", raw(jwt.SigningMethodHS256, []byte("key"), "1", valid()), now, "signature"},
		{"RS512", raw(jwt.SigningMethodRS512, signingKey(), "1", valid()), now, "signature"},
		{"an unknown mesh", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Mesh", "other")), now, "mesh does not exist"},
		{"a mesh that is a path", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Mesh", "../default")), now, "mesh does not exist"},
		{"an unknown key number", issue(t, "2", identity.Claims{Mesh: "default"}), now, "no such signing key"},
		{"a key number that is a number", raw(jwt.SigningMethodRS256, signingKey(), 1, valid()), now, "no such signing key"},
		{"no end", raw(jwt.SigningMethodRS256, signingKey(), "1", jwt.MapClaims{"Mesh": "default"}), now, "no expiry"},
		{"another type", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Type", "egress")), now, `type "egress"`},
		{"a huge one", strings.Repeat("a", 1<<20), now, "at most 16384"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := identity.Verify(c.token, keys, c.at)
			wantError(t, err, c.want)
			if err != nil && len(c.token) > 20 && strings.Contains(err.Error(), c.token[:20]) {
				t.Error("the error repeats the token")
			}
		})
	}
}

func swapPayload(token, payload string) string {
	parts := strings.Split(token, ".")
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(payload))
	return strings.Join(parts, ".")
}

func TestIssueRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		claims   identity.Claims
		validFor time.Duration
		want     string
	}{
		{"no mesh", identity.Claims{}, time.Hour, "needs a mesh"},
		{"another type", identity.Claims{Mesh: "default", Type: "zone"}, time.Hour, `"zone"`},
		{"no time", identity.Claims{Mesh: "default"}, 0, "valid for 0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := identity.Issue(signingKey(), "1", c.claims, c.validFor, now)
			wantError(t, err, c.want)
		})
	}
}

func TestPermits(t *testing.T) {
	dp := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{Inbound: []kind.Inbound{
		{Port: 80, Tags: map[string]string{"kuma.io/service": "web", "team": "a"}},
		{Port: 81, Tags: map[string]string{"kuma.io/service": "admin"}},
	}}})
	dp.Labels = map[string]string{kind.WorkloadLabel: "web"}
	for _, c := range []struct {
		name   string
		claims identity.Claims
		want   string // empty: permitted
	}{
		{"any of the mesh", identity.Claims{Mesh: "default"}, ""},
		{"its name", identity.Claims{Mesh: "default", Name: "web-1"}, ""},
		{"its workload", identity.Claims{Mesh: "default", Workload: "web"}, ""},
		{"the tags of both inbounds", identity.Claims{Mesh: "default", Tags: map[string][]string{"kuma.io/service": {"web", "admin"}}}, ""},
		{"another mesh", identity.Claims{Mesh: "other"}, `of "default"`},
		{"another name", identity.Claims{Mesh: "default", Name: "web-2"}, `for the Dataplane "web-2"`},
		{"another workload", identity.Claims{Mesh: "default", Workload: "db"}, `workload "db"`},
		{"a tag of one inbound alone", identity.Claims{Mesh: "default", Tags: map[string][]string{"kuma.io/service": {"web"}}}, "networking.inbound[1]"},
		{"a tag that one inbound lacks", identity.Claims{Mesh: "default", Tags: map[string][]string{"team": {"a"}}}, "networking.inbound[1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.claims.Permits(dp)
			if c.want != "" {
				wantError(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	noInbound := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{})
	wantError(t, (&identity.Claims{Mesh: "default", Tags: map[string][]string{"team": {"a"}}}).Permits(noInbound), "no inbound")
}

func TestSigningKeyNames(t *testing.T) {
	for secret, want := range map[string]string{
		identity.SigningKeyName("default", "12"):     "12",
		"dataplane-token-signing-key-default-":       "",
		"dataplane-token-signing-key-default-x":      "",
		"dataplane-token-signing-key-default-0":      "",
		"dataplane-token-signing-key-other-1":        "",
		"identity-ca-dataplane-token-signing-key--1": "",
	} {
		if kid, ok := identity.SigningKeyID("default", secret); ok != (want != "") || ok && kid != want {
			t.Errorf("%s holds key %q (%v), want %q", secret, kid, ok, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(issue(f, "1", identity.Claims{Mesh: "default"}))
	f.Add("eyJhbGciOiJub25lIn0.eyJNZXNoIjoiZGVmYXVsdCJ9.")
	known := issue(f, "1", identity.Claims{Mesh: "default", Name: "web-1"})
	f.Add(known)
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := identity.Verify(token, func(mesh, kid string) (*rsa.PublicKey, bool) {
			if strings.ContainsAny(mesh+kid, "/. ") {
				t.Fatalf("a key was looked up by mesh %q and number %q", mesh, kid)
			}
			return keys(mesh, kid)
		}, now)
		if (claims == nil) != (err != nil) {
			t.Fatalf("claims %v and error %v", claims, err)
		}
	})
}
