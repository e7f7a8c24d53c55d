package pki_test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// signingKeyText is made once: RSA keys are slow to make.
var signingKeyText = sync.OnceValue(func() []byte {
	text, err := pki.NewSigningKey()
	if err != nil {
		panic(err)
	}
	return text
})

var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := pki.ParseSigningKey(signingKeyText())
	if err != nil {
		panic(err)
	}
	return key
})

// secrets has key 1 of every realm, the same one, and what revokes the token "gone".
func secrets(key resource.Key) ([]byte, bool) {
	switch key {
	case pki.DataplaneRealm("default").SigningKey("1"), pki.UserRealm.SigningKey("1"),
		pki.ZoneRealm.SigningKey("1"):
		return signingKeyText(), true
	case pki.UserRealm.SigningKey("13"):
		return []byte("-----BEGIN NOTHING-----"), true
	case pki.DataplaneRealm("default").Revocations(), pki.UserRealm.Revocations():
		return []byte("gone-before, gone\n,"), true
	}
	return nil, false
}

func issue(t testing.TB, kid string, claims pki.Claims) string {
	t.Helper()
	token, err := pki.Issue(signingKey(), kid, claims, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestATokenSaysWhatItWasMadeFor(t *testing.T) {
	keys := pki.NewKeyring(secrets)
	for _, c := range []struct{ made, read pki.Claims }{
		{
			&pki.DataplaneClaims{Name: "web-1", Mesh: "default",
				Tags: map[string][]string{"kuma.io/service": {"web", "api"}}, Type: "dataplane", Workload: "web"},
			&pki.DataplaneClaims{},
		},
		{&pki.UserClaims{Name: "ann", Groups: []string{"ops"}}, &pki.UserClaims{}},
		{&pki.ZoneClaims{Zone: "east", Scope: []string{"cp"}}, &pki.ZoneClaims{}},
	} {
		if err := pki.Verify(issue(t, "1", c.made), c.read, keys, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.made, c.read); diff != "" {
			t.Error(diff)
		}
	}
}

// Even where an operator gave all kinds of tokens the same key.
func TestATokenOfOneKindIsNoGoodForAnother(t *testing.T) {
	keys := pki.NewKeyring(secrets)
	all := map[string]func() pki.Claims{
		"dataplane": func() pki.Claims { return &pki.DataplaneClaims{Mesh: "default", Name: "web-1"} },
		"user":      func() pki.Claims { return &pki.UserClaims{Name: "web-1"} },
		"zone":      func() pki.Claims { return &pki.ZoneClaims{Zone: "default", Scope: []string{"cp"}} },
	}
	empty := map[string]func() pki.Claims{
		"dataplane": func() pki.Claims { return &pki.DataplaneClaims{} },
		"user":      func() pki.Claims { return &pki.UserClaims{} },
		"zone":      func() pki.Claims { return &pki.ZoneClaims{} },
	}
	for made, claims := range all {
		for read, into := range empty {
			err := pki.Verify(issue(t, "1", claims()), into(), keys, now)
			if (err == nil) != (made == read) {
				t.Errorf("a %s token where a %s token is wanted: %v", made, read, err)
			}
		}
	}
}

func TestARevokedTokenIsRejected(t *testing.T) {
	keys := pki.NewKeyring(secrets)
	for id, good := range map[string]bool{"gone": false, "gone-before": false, "go": true, "": true} {
		token := jwt.NewWithClaims(jwt.SigningMethodRS256,
			jwt.MapClaims{"Name": "ann", "jti": id, "exp": now.Add(time.Hour).Unix()})
		token.Header["kid"] = "1"
		text, err := token.SignedString(signingKey())
		if err != nil {
			t.Fatal(err)
		}
		err = pki.Verify(text, &pki.UserClaims{}, keys, now)
		if good != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), "revoked, by GlobalSecret user-token-revocations") {
			t.Errorf("the token %q: %v", id, err)
		}
	}
}

// The signature of a token is checked once; everything else about it may have changed since.
func TestATokenThatWasVerifiedBeforeIsNotTrustedForEver(t *testing.T) {
	stored := map[resource.Key][]byte{
		pki.UserRealm.SigningKey("1"): signingKeyText(),
		pki.ZoneRealm.SigningKey("1"): signingKeyText(),
	}
	keys := pki.NewKeyring(func(key resource.Key) ([]byte, bool) {
		text, ok := stored[key]
		return text, ok
	})
	claims := &pki.UserClaims{Name: "ann"}
	token := issue(t, "1", claims)
	expect := func(when string, valid bool, at time.Time) {
		t.Helper()
		if err := pki.Verify(token, &pki.UserClaims{}, keys, at); valid != (err == nil) {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("the first time", true, now)
	expect("again", true, now)
	expect("once it has expired", false, now.Add(2*time.Hour))
	if err := pki.Verify(token, &pki.ZoneClaims{}, keys, now); err == nil {
		t.Error("a user's token is valid as a zone's once it was verified")
	}
	again := func(when string, valid bool) {
		t.Helper()
		if err := pki.Reverify(token, claims, keys); valid != (err == nil) {
			t.Errorf("%s: %v", when, err)
		}
		expect(when, valid, now)
	}
	again("nothing has changed", true)
	stored[pki.UserRealm.Revocations()] = []byte(claims.ID)
	again("its id is revoked", false)
	delete(stored, pki.UserRealm.Revocations())
	other, err := pki.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	stored[pki.UserRealm.SigningKey("1")] = other
	again("the signing key has changed", false)
	delete(stored, pki.UserRealm.SigningKey("1"))
	again("the signing key is gone", false)
}

func TestVerifyRejects(t *testing.T) {
	keys := pki.NewKeyring(secrets)
	good := issue(t, "1", &pki.DataplaneClaims{Mesh: "default"})
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
		{"nothing", "", now, "not a dataplane-token"},
		{"garbage", "a.b.c", now, "not a dataplane-token"},
		{"after its end", good, now.Add(2 * time.Hour), "has expired"},
		{"before its begin", good, now.Add(-time.Hour), "not valid yet"},
		{"another payload", swapPayload(good, `{"Mesh":"default","Name":"admin","exp":9999999999}`), now, "signature"},
		{"an unsigned one", raw(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "1", valid()), now,
			"signature"},
		{"the public key taken for a shared secret", raw(jwt.SigningMethodHS256, []byte("key"), "1", valid()), now,
			"signature"},
		{"RS512", raw(jwt.SigningMethodRS512, signingKey(), "1", valid()), now, "signature"},
		{"an unknown mesh", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Mesh", "other")), now,
			"key that does not exist here"},
		{"a mesh that is a path", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Mesh", "../default")), now,
			"needs the name of a mesh"},
		{"an unknown key number", issue(t, "2", &pki.DataplaneClaims{Mesh: "default"}), now,
			"key that does not exist here"},
		{"a key number that is a number", raw(jwt.SigningMethodRS256, signingKey(), 1, valid()), now,
			"key that does not exist here"},
		{"no end", raw(jwt.SigningMethodRS256, signingKey(), "1", jwt.MapClaims{"Mesh": "default"}), now, "no expiry"},
		{"a claim that dataplane tokens have not",
			raw(jwt.SigningMethodRS256, signingKey(), "1", with("Groups", []string{"mesh-system:admin"})), now,
			"not a dataplane-token"},
		{"another type", raw(jwt.SigningMethodRS256, signingKey(), "1", with("Type", "gateway")), now, `"gateway"`},
		{"a huge one", strings.Repeat("a", 1<<20), now, "at most 16384"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := pki.Verify(c.token, &pki.DataplaneClaims{}, keys, c.at)
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

// The key with which tokens are checked is public knowledge, so it must not serve as a shared secret.
func TestThePublicKeyIsNoSharedSecret(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(&signingKey().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for _, secret := range [][]byte{der, public, signingKeyText()} {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256,
			jwt.MapClaims{"Name": "mesh-system:admin", "exp": now.Add(time.Hour).Unix()})
		token.Header["kid"] = "1"
		text, err := token.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, pki.Verify(text, &pki.UserClaims{}, pki.NewKeyring(secrets), now), "signature")
	}
}

func TestABrokenSigningKeyIsNamed(t *testing.T) {
	err := pki.Verify(issue(t, "13", &pki.UserClaims{Name: "ann"}), &pki.UserClaims{},
		pki.NewKeyring(secrets), now)
	wantError(t, err, "GlobalSecret user-token-signing-key-13: the token signing key is not PEM")
}

func TestIssueRejects(t *testing.T) {
	for _, c := range []struct {
		name     string
		claims   pki.Claims
		validFor time.Duration
		want     string
	}{
		{"no mesh", &pki.DataplaneClaims{}, time.Hour, "needs the name of a mesh"},
		{"another type", &pki.DataplaneClaims{Mesh: "default", Type: "zone"}, time.Hour, `"zone"`},
		{"no user", &pki.UserClaims{Name: " "}, time.Hour, "name of its user"},
		{"no zone", &pki.ZoneClaims{}, time.Hour, "name of a zone"},
		{"an unknown scope", &pki.ZoneClaims{Zone: "east", Scope: []string{"all"}}, time.Hour, `no scope "all"`},
		{"no time", &pki.DataplaneClaims{Mesh: "default"}, 0, "valid for 0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pki.Issue(signingKey(), "1", c.claims, c.validFor, now)
			wantError(t, err, c.want)
		})
	}
}

func TestPermits(t *testing.T) {
	dp := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{Inbound: []kind.Inbound{
		{Port: 80, Tags: map[string]string{"kuma.io/service": "web", "team": "a"}},
		{Port: 81, Tags: map[string]string{"kuma.io/service": "admin"}},
	}}})
	dp.Labels = map[string]string{kind.WorkloadLabel: "web", "team": "a"}
	for _, c := range []struct {
		name   string
		claims pki.DataplaneClaims
		want   string // empty: permitted
	}{
		{"any of the mesh", pki.DataplaneClaims{Mesh: "default"}, ""},
		{"its name", pki.DataplaneClaims{Mesh: "default", Name: "web-1"}, ""},
		{"its label", pki.DataplaneClaims{Mesh: "default", Labels: map[string]string{"team": "a"}}, ""},
		{"another label", pki.DataplaneClaims{Mesh: "default", Labels: map[string]string{"team": "b"}},
			`label team: b`},
		{"an absent label", pki.DataplaneClaims{Mesh: "default", Labels: map[string]string{"pci": ""}},
			`label pci: `},
		{"a zone egress alone", pki.DataplaneClaims{Mesh: "default", Type: "egress"},
			"has more than zone proxy sections; make one with `weft generate dataplane-token --mesh default --name " +
				"web-1 --workload web --tag kuma.io/service=web --tag kuma.io/service=admin`"},
		{"a zone egress too", pki.DataplaneClaims{Mesh: "default", Type: "dataplane,egress"}, ""},
		{"its workload", pki.DataplaneClaims{Mesh: "default", Workload: "web"}, ""},
		{"the tags of both inbounds",
			pki.DataplaneClaims{Mesh: "default", Tags: map[string][]string{"kuma.io/service": {"web", "admin"}}},
			""},
		{"another mesh", pki.DataplaneClaims{Mesh: "other"}, `of "default"`},
		{"another name", pki.DataplaneClaims{Mesh: "default", Name: "web-2"}, `for the Dataplane "web-2"`},
		{"another workload", pki.DataplaneClaims{Mesh: "default", Workload: "db"}, `workload "db"`},
		{"a tag of one inbound alone",
			pki.DataplaneClaims{Mesh: "default", Tags: map[string][]string{"kuma.io/service": {"web"}}},
			"networking.inbound[1]"},
		{"a tag that one inbound lacks",
			pki.DataplaneClaims{Mesh: "default", Tags: map[string][]string{"team": {"a"}}},
			"networking.inbound[1]"},
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
	wantError(t,
		(&pki.DataplaneClaims{Mesh: "default", Tags: map[string][]string{"team": {"a"}}}).Permits(noInbound),
		"no inbound")
}

func TestSigningKeyNames(t *testing.T) {
	mesh, global := "default", ""
	for secret, want := range map[resource.Key]string{
		kind.Secrets.Key(mesh,
			"dataplane-token-signing-key-default-12"): "dataplane-token of the mesh default 12",
		kind.Secrets.Key(mesh,
			"dataplane-token-signing-key-default-global-1"): "dataplane-token of the mesh default global-1",
		kind.Secrets.Key(mesh,
			"dataplane-token-signing-key-default-zone-east-1-2"): "dataplane-token of the mesh default zone-east-1-2",
		kind.GlobalSecrets.Key(global, "user-token-signing-key-zone-global-1"):   "user-token zone-global-1",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-default-zone--1"):    "",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-default-zone-east-"): "",
		kind.Secrets.Key("a-b", "dataplane-token-signing-key-a-b-1"):             "dataplane-token of the mesh a-b 1",
		kind.GlobalSecrets.Key(global, "user-token-signing-key-3"):               "user-token 3",
		kind.GlobalSecrets.Key(global, "zone-token-signing-key-2"):               "zone-token 2",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-default-"):           "",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-default-x"):          "",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-default-0"):          "",
		kind.Secrets.Key(mesh, "dataplane-token-signing-key-other-1"):            "",
		kind.Secrets.Key(mesh, "identity-ca-dataplane-token-signing-key-1"):      "",
		kind.Secrets.Key(mesh, "user-token-signing-key-1"):                       "",
		kind.GlobalSecrets.Key(global, "admin-user-token"):                       "",
		kind.GlobalSecrets.Key(global, ""):                                       "",
	} {
		got := ""
		if realm, kid, ok := pki.SigningKeyOf(secret); ok {
			got = realm.String() + " " + kid
		}
		if got != want {
			t.Errorf("%s holds the key %q, want %q", secret, got, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(issue(f, "1", &pki.DataplaneClaims{Mesh: "default"}))
	f.Add("eyJhbGciOiJub25lIn0.eyJNZXNoIjoiZGVmYXVsdCJ9.")
	f.Add(issue(f, "1", &pki.DataplaneClaims{Mesh: "default", Name: "web-1"}))
	f.Add(issue(f, "1", &pki.UserClaims{Name: "ann", Groups: []string{"ops"}}))
	f.Fuzz(func(t *testing.T, token string) {
		keys := pki.NewKeyring(func(key resource.Key) ([]byte, bool) {
			if strings.ContainsAny(key.Mesh+key.Name, "/. ") {
				t.Fatalf("a key was looked up as %s", key)
			}
			return secrets(key)
		})
		for _, claims := range []pki.Claims{&pki.DataplaneClaims{}, &pki.UserClaims{},
			&pki.ZoneClaims{}} {
			if err := pki.Verify(token, claims, keys, now); err != nil && len(token) > 20 &&
				strings.Contains(err.Error(), token) {
				t.Fatalf("the error repeats the token: %v", err)
			}
		}
	})
}

// Zones check the tokens of the global control plane, and can't make any: no private key is told to them, and
// nothing by which its users or servers are known.
func TestWhatZonesAreToldOfSecrets(t *testing.T) {
	dataplanes := pki.DataplaneRealm("default")
	inZone := func(key resource.Key) ([]byte, bool) {
		text, ok := secrets(key)
		if !ok {
			return nil, false
		}
		return pki.ForZones(key, text)
	}
	keys := pki.NewKeyring(inZone)
	claims := &pki.DataplaneClaims{Mesh: "default", Name: "web-1"}
	if err := pki.Verify(issue(t, "1", claims), &pki.DataplaneClaims{}, keys, now); err != nil {
		t.Errorf("a dataplane token: %v", err)
	}
	if key, err := keys.Signer(dataplanes, "1"); key != nil || err != nil {
		t.Errorf("the zone can sign: %v", err)
	}
	if text, ok := inZone(dataplanes.SigningKey("1")); !ok || strings.Contains(string(text), "PRIVATE") {
		t.Error("a private key is told")
	}
	for _, name := range []string{pki.UserRealm.SigningKey("1").Name, pki.UserRealm.Revocations().Name,
		pki.AdminTokenSecret, pki.ServerCASecret} {
		if _, told := pki.ForZones(kind.GlobalSecrets.Key("", name), signingKeyText()); told {
			t.Errorf("%s is told", name)
		}
	}
	if _, told := pki.ForZones(dataplanes.SigningKey("zone-east-1"), signingKeyText()); told {
		t.Error("the key of a zone is told")
	}
	if _, told := pki.ForZones(dataplanes.SigningKey("2"), []byte("no key")); told {
		t.Error("what can't be read is told")
	}
	for _, key := range []resource.Key{dataplanes.Revocations(), kind.Secrets.Key("default", "ca")} {
		if text, told := pki.ForZones(key, []byte("as it is")); !told || string(text) != "as it is" {
			t.Errorf("%s is told as %q", key, text)
		}
	}
}
