package rest

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/kind"
)

func (w *world) verify(token string, claims pki.Claims, now time.Time) error {
	return pki.Verify(token, claims, w.keys, now)
}

func TestTokenHasTheRequestedClaims(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	r := w.do("POST", "/tokens/dataplane",
		`{"name":"web-1","mesh":"default","tags":{"kuma.io/service":["web"]},"workload":"w","validFor":"1d"}`, nil)
	token := text(r)
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("%s %s %s", r.Status, r.Header, token)
	}
	var claims pki.DataplaneClaims
	if err := w.verify(token, &claims, time.Now()); err != nil {
		t.Fatal(err)
	}
	if claims.Name != "web-1" || claims.Mesh != "default" || claims.Workload != "w" ||
		claims.Tags["kuma.io/service"][0] != "web" {
		t.Errorf("claims: %+v", claims)
	}
	if w.verify(token, &claims, time.Now().Add(25*time.Hour)) == nil {
		t.Error("the token outlives what was asked for")
	}
}

// Concurrent requests for the first tokens of a mesh use one signing key, and every token is valid.
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
		if err := w.verify(token, &pki.DataplaneClaims{}, time.Now()); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

func TestNewestSigningKeySigns(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	for _, kid := range []string{"2", "10"} {
		key, err := pki.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		secret := kind.Secrets.Make("default", pki.DataplaneRealm("default").SigningKey(kid).Name,
			kind.Secret{Data: key})
		if _, err := w.writer.Put(t.Context(), secret, admission.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	token := text(w.do("POST", "/tokens/dataplane", `{"validFor":"1h"}`, nil))
	if r := w.do("DELETE", "/meshes/default/secrets/"+pki.DataplaneRealm("default").SigningKey("2").Name, "",
		nil); r.StatusCode != http.StatusOK {
		t.Fatal(text(r))
	}
	if err := w.verify(token, &pki.DataplaneClaims{}, time.Now()); err != nil {
		t.Error(err)
	}
}

func TestTokensOfUsersAndZones(t *testing.T) {
	w := newWorld(t, newStore(t))
	var user pki.UserClaims
	token := text(w.do("POST", "/tokens/user", `{"name":"ann","groups":["ops"],"validFor":"1h"}`, nil))
	if err := w.verify(token, &user, time.Now()); err != nil || user.Name != "ann" ||
		!slices.Equal(user.Groups, []string{"ops"}) {
		t.Errorf("%+v, %v", user, err)
	}
	var zone pki.ZoneClaims
	token = text(w.do("POST", "/tokens/zone", `{"zone":"east","validFor":"1h"}`, nil))
	if err := w.verify(token, &zone, time.Now()); err != nil || zone.Zone != "east" || len(zone.Scope) != 3 {
		t.Errorf("%+v, %v", zone, err)
	}
}

// The user of a token is authenticated on any machine, including the control plane's own, until the token is revoked.
func TestAUserToken(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	token := text(w.do("POST", "/tokens/user", `{"name":"ann","groups":["ops"],"validFor":"1h"}`, nil))
	ann := http.Header{"Authorization": {"Bearer " + token}}
	for _, request := range []struct {
		what     string
		want     int
		response string
	}{
		{"GET /who-am-i", 200,
			`{"name":"ann","groups":["ops","mesh-system:authenticated"],"proof":"userToken","tokenId":"`},
		{"GET /meshes/default", 200, `"default"`},
		{"GET /meshes/default/secrets", 403, "KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS"},
		{"GET /globalsecrets", 403,
			`user \"ann\" (groups ops, mesh-system:authenticated) may not read and write Secrets`},
		{"PUT /meshes/other", 403, "KUMA_ACCESS_STATIC_OPERATOR_RESOURCES_GROUPS"},
		{"PUT /meshes/default/meshtimeouts/a", 403, "KUMA_ACCESS_STATIC_WRITE_GROUPS"},
		{"POST /tokens/user", 403, "may not generate user tokens"},
		{"GET /meshes/default/dataplanes/a/_config", 403, "KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_GROUPS"},
	} {
		method, path, _ := strings.Cut(request.what, " ")
		r := w.do(method, path, "", ann)
		if response := text(r); r.StatusCode != request.want || !strings.Contains(response, request.response) {
			t.Errorf("%s: %s %s", request.what, r.Status, response)
		}
	}
	var claims pki.UserClaims
	if err := w.verify(token, &claims, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.put(t, "/globalsecrets/user-token-revocations",
		`{"type":"GlobalSecret","data":"`+base64.StdEncoding.EncodeToString([]byte(claims.ID))+`"}`)
	if r := w.do("GET", "/who-am-i", "", ann); r.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(text(r), "revoked") {
		t.Errorf("a revoked token: %s", r.Status)
	}
}

// An invalid credential is rejected, even for an action that needs no credential.
func TestNoGoodProof(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	dataplane := text(w.do("POST", "/tokens/dataplane", `{"name":"web-1","validFor":"1h"}`, nil))
	for name, values := range map[string][]string{
		"empty":            {""},
		"another scheme":   {"Basic YWRtaW46YWRtaW4="},
		"nothing behind":   {"Bearer"},
		"garbage":          {"Bearer a.b.c"},
		"a huge one":       {"Bearer " + strings.Repeat("a", 1<<15)},
		"of a dataplane":   {"Bearer " + dataplane},
		"two at once":      {"Bearer a", "Bearer b"},
		"unsigned":         {"Bearer eyJhbGciOiJub25lIiwia2lkIjoiMSJ9.eyJOYW1lIjoibWVzaC1zeXN0ZW06YWRtaW4ifQ."},
		"without a scheme": {dataplane},
	} {
		r := w.do("GET", "/who-am-i", "", http.Header{"Authorization": values})
		if response := text(r); r.StatusCode != http.StatusUnauthorized || strings.Contains(response, dataplane) {
			t.Errorf("%s: %s %s", name, r.Status, response)
		}
	}
}

// A token that no control plane would accept is not issued.
func TestATokenThatNoControlPlaneAcceptsIsNotIssued(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	long := strings.Repeat("x", pki.MaxToken)
	r := w.do("POST", "/tokens/dataplane", `{"validFor":"1h","tags":{"kuma.io/service":["`+long+`"]}}`, nil)
	if response := text(r); r.StatusCode != http.StatusBadRequest ||
		!strings.Contains(response, "at most 16384 are read") {
		t.Errorf("%s %s", r.Status, response)
	}
}
