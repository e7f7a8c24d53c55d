package rest

import (
	"crypto/rsa"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/admit"
	"weft/internal/identity"
	"weft/kind"
	"weft/resource"
)

// publicKey finds the signing key of a mesh as the data plane server does.
func (w *world) publicKey(t *testing.T) func(mesh, kid string) (*rsa.PublicKey, bool) {
	return func(mesh, kid string) (*rsa.PublicKey, bool) {
		row, err := w.store.Get(t.Context(), kind.Secrets.Key(mesh, identity.SigningKeyName(mesh, kid)))
		if err != nil {
			return nil, false
		}
		o, err := admit.Decode(row)
		if err != nil {
			t.Fatal(err)
		}
		key, err := identity.ParseSigningKey(resource.SpecOf(o).(*kind.Secret).Data)
		if err != nil {
			t.Fatal(err)
		}
		return &key.PublicKey, true
	}
}

func TestTokenSaysWhatWasAskedFor(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	r := w.do("POST", "/tokens/dataplane", `{"name":"web-1","mesh":"default","tags":{"kuma.io/service":["web"]},"workload":"w","validFor":"1d"}`, nil)
	token := text(r)
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("%s %s %s", r.Status, r.Header, token)
	}
	claims, err := identity.Verify(token, w.publicKey(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if claims.Name != "web-1" || claims.Mesh != "default" || claims.Workload != "w" || claims.Tags["kuma.io/service"][0] != "web" {
		t.Errorf("claims: %+v", claims)
	}
	if _, err := identity.Verify(token, w.publicKey(t), time.Now().Add(25*time.Hour)); err == nil {
		t.Error("the token outlives what was asked for")
	}
}

// The first tokens of a mesh are asked for at once: one signing key wins, and every token is good.
func TestFirstTokensAtOnce(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	tokens := make([]string, 4)
	var wait sync.WaitGroup
	for i := range tokens {
		wait.Go(func() { tokens[i] = text(w.do("POST", "/tokens/dataplane", `{"validFor":"1h"}`, nil)) })
	}
	wait.Wait()
	for _, token := range tokens {
		if _, err := identity.Verify(token, w.publicKey(t), time.Now()); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

func TestNewestSigningKeySigns(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	for _, kid := range []string{"2", "10"} {
		key, err := identity.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		secret := kind.Secrets.Make("default", identity.SigningKeyName("default", kid), kind.Secret{Data: key})
		if _, err := w.writer.Put(t.Context(), secret, admit.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	token := text(w.do("POST", "/tokens/dataplane", `{"validFor":"1h"}`, nil))
	newest := func(mesh, kid string) (*rsa.PublicKey, bool) {
		if kid != "10" {
			t.Errorf("signed with key %s, want 10", kid)
		}
		return w.publicKey(t)(mesh, kid)
	}
	if _, err := identity.Verify(token, newest, time.Now()); err != nil {
		t.Error(err)
	}
}

// A token that no control plane would read is refused when it is made.
func TestATokenThatNobodyWouldReadIsNotMade(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	long := strings.Repeat("x", identity.MaxToken)
	r := w.do("POST", "/tokens/dataplane", `{"validFor":"1h","tags":{"kuma.io/service":["`+long+`"]}}`, nil)
	if answer := text(r); r.StatusCode != http.StatusBadRequest || !strings.Contains(answer, "at most 16384 are read") {
		t.Errorf("%s %s", r.Status, answer)
	}
}
