package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/internal/inspect"
)

// TestDiffRejects: what a diff cannot compare has an error that names it, and nothing is written.
func TestDiffRejects(t *testing.T) {
	s := shop(t)
	many := strings.TrimSuffix(strings.Repeat(`{"type": "MeshTimeout", "mesh": "shop", "name": "a"}, `, 1001), ", ")
	for name, test := range map[string]struct {
		query, body string
		status      int
		want        string
	}{
		"nothing":   {"", `{}`, 400, "the request has 0 resources, want 1 to 1000"},
		"too much":  {"", `{"delete": [` + many + `]}`, 400, "the request has 1001 resources"},
		"no object": {"", `[]`, 400, "the body is a JSON array"},
		"a field":   {"", `{"put": []}`, 400, "unknown field"},
		"a query":   {"?fields=maybe", `{}`, 400, "is neither true nor false"},
		"a type":    {"", `{"delete": [{"type": "No", "name": "a"}]}`, 400, "is not a type of this control plane"},
		"a read type": {"", `{"delete": [{"type": "ZoneInsight", "name": "a"}]}`, 403,
			"written by the control plane only"},
		"an absent one": {"", `{"delete": [{"type": "MeshTimeout", "mesh": "shop", "name": "no"}]}`, 400,
			"does not exist"},
		"no name": {"", `{"apply": [{"type": "Mesh"}]}`, 400, "has no name"},
		"a value": {"", `{"apply": [{"type": "MeshTimeout", "mesh": "shop", "name": "a", "spec": {"to": [{"targetRef": ` +
			`{"kind": "Mesh"}, "default": {"connectionTimeout": "0s"}}]}}]}`, 400,
			"apply[0].spec.to[0].default.connectionTimeout"},
		"a size": {"", `{"apply": ["` + strings.Repeat("a", maxDiffBytes) + `"]}`, http.StatusRequestEntityTooLarge, ""},
	} {
		status, _, response := s.send(t, "POST", "/_diff"+test.query, test.body, nil)
		if status != test.status || !strings.Contains(response, test.want) {
			t.Errorf("%s: %d %.300s, want %d with %q", name, status, response, test.status, test.want)
		}
	}
	body := `{"apply": [{"type": "Mesh", "name": "new"}], "delete": [{"type": "Mesh", "name": "new"}]}`
	if status, _, response := s.send(t, "POST", "/_diff", body, nil); status != http.StatusOK {
		t.Errorf("a resource that is written and deleted: %d %s", status, response)
	}
	if status, _, _ := s.send(t, "GET", "/meshes/new", "", nil); status != http.StatusNotFound {
		t.Errorf("the diff wrote a Mesh: %d", status)
	}
}

// TestCallersOfADiff: a diff shows resources, so its caller needs the permissions of the write and of the read, and
// further ones for Secrets and for the fields of Envoy resources. No other caller learns anything.
func TestCallersOfADiff(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	config := w.config()
	config.Guard.Rules = access.Defaults()
	for _, action := range []access.Action{access.Read, access.Preview, access.Write, access.OperatorResources,
		access.AdminResources, access.ViewConfigDump} {
		config.Guard.Rules[action] = access.Rule{Groups: []string{string(action)}}
	}
	config.Guard.Keys = w.keys
	handler := New(config)
	token := func(groups ...string) string {
		return text(w.do("POST", "/tokens/user", fmt.Sprintf(`{"name":"ann","groups":["%s"],"validFor":"1h"}`,
			strings.Join(groups, `","`)), nil))
	}
	dataplane := text(w.do("POST", "/tokens/dataplane", `{"mesh":"default","name":"web-1","validFor":"1h"}`, nil))
	zone := text(w.do("POST", "/tokens/zone", `{"zone":"east","scope":["cp","ingress"],"validFor":"1h"}`, nil))
	const timeout = `{"apply":[{"type":"MeshTimeout","mesh":"default","name":"a","spec":{"to":[{"targetRef":` +
		`{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}}]}`
	const secret = `{"apply":[{"type":"Secret","mesh":"default","name":"a","data":"c3dvcmRmaXNo"}]}`
	const reference = `{"apply":[{"type":"MeshExternalService","mesh":"default","name":"a","spec":{"match":{"type":` +
		`"HostnameGenerator","port":443,"protocol":"tcp"},"endpoints":[{"address":"192.0.2.1","port":443}],"tls":` +
		`{"enabled":true,"verification":{"caCert":{"type":"Secret","secretRef":{"kind":"Secret","name":"a"}}}}}}]}`
	const removedSecret = `{"delete":[{"type":"Secret","mesh":"default","name":"a"}]}`
	for name, test := range map[string]struct {
		token, query, body string
		want               int
	}{
		"no token":             {"", "", timeout, 401},
		"a dataplane token":    {dataplane, "", timeout, 401},
		"a zone token":         {zone, "", timeout, 401},
		"another text":         {"swordfish", "", timeout, 401},
		"without permissions":  {token("ops"), "", timeout, 403},
		"may read":             {token("read"), "", timeout, 403},
		"may write":            {token("write"), "", timeout, 403},
		"may read and write":   {token("read", "write"), "", timeout, 200},
		"may preview":          {token("preview"), "", timeout, 403},
		"may read and preview": {token("read", "preview"), "", timeout, 200},
		"a reader's kind of operators": {token("read", "preview"), "", `{"apply":[{"type":"Mesh","name":"new"}]}`,
			200},
		"a reader's Secret":           {token("read", "preview"), "", secret, 403},
		"a reader's deletion of one":  {token("read", "preview"), "", removedSecret, 403},
		"a reader's reference to one": {token("read", "preview"), "", reference, 403},
		"a reader's fields":           {token("read", "preview"), "?fields=true", timeout, 403},
		"a reader's shadow policies":  {token("read", "preview"), "?shadow=true", `{}`, 200},
		"a reader's fields, may view them": {token("read", "preview", "viewConfigDump"), "?fields=true", timeout,
			200},
		"fields":                   {token("read", "write"), "?fields=true", timeout, 403},
		"fields, may view them":    {token("read", "write", "viewConfigDump"), "?fields=true", timeout, 200},
		"a Secret":                 {token("read", "write"), "", secret, 403},
		"the deletion of a Secret": {token("read", "write"), "", removedSecret, 403},
		"a kind of operators":      {token("read", "write", "adminResources"), "", reference, 403},
		"a reference to a Secret":  {token("read", "write", "operatorResources"), "", reference, 403},
		"a reference, may read Secrets": {token("read", "write", "operatorResources", "adminResources"), "", reference,
			200},
		"a Secret, may write it":            {token("read", "write", "adminResources"), "", secret, 200},
		"nothing to compare":                {token("ops"), "?shadow=true", `{}`, 403},
		"shadow policies, may read them":    {token("read", "write"), "?shadow=true", `{}`, 200},
		"a large body without permissions":  {token("ops"), "", strings.Repeat(" ", maxDiffBytes+1), 403},
		"a large body of a dataplane token": {dataplane, "", strings.Repeat(" ", maxDiffBytes+1), 401},
	} {
		r := httptest.NewRequest("POST", "/_diff"+test.query, strings.NewReader(test.body))
		r.RemoteAddr = "192.0.2.7:4000"
		if test.token != "" {
			r.Header.Set("Authorization", "Bearer "+test.token)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		if recorder.Code != test.want {
			t.Errorf("%s: %d, want %d: %s", name, recorder.Code, test.want, recorder.Body)
		}
		learned := recorder.Body.String()
		contains := func(part string) bool { return strings.Contains(learned, part) }
		if test.want != http.StatusOK && slices.ContainsFunc([]string{"zones", `resources"`, "swordfish",
			"c3dvcmRmaXNo"}, contains) {
			t.Errorf("%s: an unauthorized caller gets %s", name, learned)
		}
	}
}

// TestWhoAdministers: a user who may write, and not read Secrets, stores no reference to one.
func TestWhoAdministers(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	config := w.config()
	config.Guard.Rules = access.Defaults()
	config.Guard.Rules[access.OperatorResources] = access.Rule{Groups: []string{"writers"}}
	config.Guard.Rules[access.AdminResources] = access.Rule{Groups: []string{"keepers"}}
	config.Guard.Keys = w.keys
	handler := New(config)
	put := func(port int, secret string, groups ...string) *httptest.ResponseRecorder {
		token := text(w.do("POST", "/tokens/user", fmt.Sprintf(`{"name":"ann","groups":["%s"],"validFor":"1h"}`,
			strings.Join(groups, `","`)), nil))
		r := httptest.NewRequest("PUT", "/meshes/default/meshexternalservices/bank", strings.NewReader(fmt.Sprintf(
			`{"type":"MeshExternalService","spec":{"match":{"type":"HostnameGenerator","port":%d,"protocol":"tcp"},`+
				`"endpoints":[{"address":"192.0.2.1","port":443}],"tls":{"enabled":true,"verification":{"caCert":`+
				`{"type":"Secret","secretRef":{"kind":"Secret","name":%q}}}}}}`, port, secret)))
		r.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		return recorder
	}
	for _, step := range []struct {
		port   int
		secret string
		groups []string
		want   int
	}{
		{443, "a", []string{"writers"}, 403},
		{443, "a", []string{"writers", "keepers"}, 201},
		{444, "a", []string{"writers"}, 200},
		{444, "b", []string{"writers"}, 403},
	} {
		got := put(step.port, step.secret, step.groups...)
		if got.Code != step.want || got.Code == 403 && !strings.Contains(got.Body.String(),
			"KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS") {
			t.Errorf("%+v: %d %s", step, got.Code, got.Body)
		}
	}
}

// TestGlobalGivesZonesTimeToStore: global has a zone compare once the zone has stored what global has, and names the
// kinds that it lacks after a time.
func TestGlobalGivesZonesTimeToStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stored := time.Now().Add(time.Second)
		a := &api{Config: Config{Links: func(zone string) map[string]inspect.KindLink {
			return map[string]inspect.KindLink{"Mesh": {Connected: true, Current: true}, "Dataplane": {},
				"MeshTimeout": {Connected: true, Current: zone == "east" && !time.Now().Before(stored)}}
		}}}
		if lacks := a.awaitStored(t.Context(), "east"); lacks != "" || time.Since(stored) != 0 {
			t.Errorf("%q, %s after all was stored", lacks, time.Since(stored))
		}
		begin := time.Now()
		lacks := a.awaitStored(t.Context(), "west")
		if lacks != "the zone has not stored all that global has of MeshTimeout" || time.Since(begin) != maxStoredTime {
			t.Errorf("%q after %s", lacks, time.Since(begin))
		}
	})
}
