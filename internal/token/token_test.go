package token_test

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/store/memory"
	"weft/internal/token"
	"weft/internal/token/tokentest"
	"weft/kind"
	"weft/resource"
)

// plane is a control plane that makes and verifies tokens: of a zone, or, without one, global.
type plane struct {
	t      *testing.T
	rows   *memory.Store
	writer *admission.Writer
	issuer *token.Issuer
	keys   *pki.Keyring
}

func newPlane(t *testing.T, zone string) *plane {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { rows.Close() })
	writer := admission.New(rows, admission.Options{Zone: zone})
	issuer, keys := tokentest.New(rows, writer)
	p := &plane{t, rows, writer, issuer, keys}
	if err := p.put(kind.Meshes.Make("", "default", kind.Mesh{})); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plane) put(o resource.Any) error {
	p.t.Helper()
	_, err := p.writer.Put(p.t.Context(), o, admission.Change{})
	return err
}

// token returns a dataplane token and the id of its key.
func (p *plane) token() (text, kid string) {
	p.t.Helper()
	text, err := p.issuer.Issue(p.t.Context(), &pki.DataplaneClaims{Mesh: "default"}, time.Hour)
	if err != nil {
		p.t.Fatal(err)
	}
	parsed, _, err := jwt.NewParser().ParseUnverified(text, jwt.MapClaims{})
	if err != nil {
		p.t.Fatal(err)
	}
	return text, parsed.Header["kid"].(string)
}

// accepts says whether the control plane verifies a token.
func (p *plane) accepts(text string) bool {
	return pki.Verify(text, &pki.DataplaneClaims{}, p.keys, time.Now()) == nil
}

// joins gives a zone what global tells zones of a signing key.
func (p *plane) joins(global *plane, kid string) {
	p.t.Helper()
	key := pki.DataplaneRealm("default").SigningKey(kid)
	row, err := global.rows.Get(p.t.Context(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		p.t.Fatal(err)
	}
	secret := o.(*resource.Object[kind.Secret])
	public, told := pki.ForZones(key, secret.Spec.Data)
	if !told {
		p.t.Fatalf("zones are not told of %s", key)
	}
	secret.Spec.Data = public
	body, err := resource.Body(secret)
	if err == nil {
		err = p.writer.Receive(p.t.Context(), admission.Received{Kind: kind.Secrets, Mesh: "default", Name: key.Name,
			Body: body})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// A zone that has made tokens joins a global control plane that has, too. Their keys don't meet: both sign on, and a
// token is valid where it is meant to be.
func TestKeysOfControlPlanesDoNotMeet(t *testing.T) {
	global, east, west := newPlane(t, ""), newPlane(t, "east"), newPlane(t, "west")
	everywhere, kid := global.token()
	if kid != "global-1" {
		t.Errorf("global signs with %s", kid)
	}
	ofEast, kid := east.token()
	if kid != "zone-east-1" {
		t.Errorf("the zone signs with %s", kid)
	}
	ofWest, _ := west.token()
	for _, zone := range []*plane{east, west} {
		zone.joins(global, "global-1")
		if _, kid := zone.token(); !strings.HasPrefix(kid, "zone-") {
			t.Errorf("the zone signs with %s once it has joined", kid)
		}
	}
	for name, c := range map[string]struct {
		at    *plane
		token string
		want  bool
	}{
		"global's in east": {east, everywhere, true}, "global's in west": {west, everywhere, true},
		"global's on global": {global, everywhere, true},
		"east's in east":     {east, ofEast, true}, "east's in west": {west, ofEast, false},
		"east's on global": {global, ofEast, false},
		"west's in east":   {east, ofWest, false},
	} {
		if got := c.at.accepts(c.token); got != c.want {
			t.Errorf("%s: accepted %v, want %v", name, got, c.want)
		}
	}
}

func TestAnOperatorsKeySigns(t *testing.T) {
	east := newPlane(t, "east")
	before, _ := east.token()
	text, err := pki.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	realm := pki.DataplaneRealm("default")
	if err := east.put(kind.Secrets.Make("default", realm.SigningKey("1").Name, kind.Secret{Data: text})); err != nil {
		t.Fatal(err)
	}
	after, kid := east.token()
	if kid != "1" || !east.accepts(before) || !east.accepts(after) {
		t.Errorf("signs with %s, accepts the former token: %v, and the new one: %v", kid, east.accepts(before),
			east.accepts(after))
	}
	err = east.put(kind.Secrets.Make("default", realm.SigningKey("global-1").Name, kind.Secret{Data: text}))
	if err == nil || !strings.Contains(err.Error(), "name an own key dataplane-token-signing-key-default-1") {
		t.Errorf("a zone stores a key under a name of global's: %v", err)
	}
}
