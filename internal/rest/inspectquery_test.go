package rest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"weft/internal/inspect"
	"weft/internal/state"
)

// recorded is an inspector that records the parts of inspections that it is asked for.
type recorded struct {
	stranger
	sections *[]string
	callers  *inspect.CallersPage
}

func (i recorded) AppliedConfs(_ state.ProxyKey, sections ...string) *inspect.Applied {
	*i.sections = sections
	return &inspect.Applied{}
}

func (i recorded) BackingOf(_ state.ServiceKey, callers inspect.CallersPage) *inspect.Backing {
	*i.callers = callers
	return &inspect.Backing{}
}

// TestQueriesOfInspections: a query selects sections of a proxy's report and a page of a service's callers, and an
// invalid one is rejected with the field.
func TestQueriesOfInspections(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	w.put(t, "/meshes/default/dataplanes/web", `{"type": "Dataplane", "mesh": "default", "name": "web",
		"networking": {"address": "10.0.0.1", "inbound": [{"port": 80}]}}`)
	w.put(t, "/meshes/default/meshservices/web", `{"type": "MeshService", "mesh": "default", "name": "web",
		"spec": {"selector": {"dataplaneTags": {"a": "b"}}, "ports": [{"port": 80}]}}`)
	config, got := w.config(), recorded{sections: &[]string{}, callers: &inspect.CallersPage{}}
	config.Inspector = got
	w.handler = New(config)
	proxy, service := "/meshes/default/dataplanes/web/_inspect", "/meshes/default/meshservices/web/_backing"
	for _, c := range []struct {
		target   string
		sections []string
		callers  inspect.CallersPage
		problem  string // part of the response where the query is invalid
	}{
		{target: proxy},
		{target: proxy + "?sections=identity", sections: []string{"identity"}},
		{target: proxy + "?sections=facts,outbounds", sections: []string{"facts", "outbounds"}},
		{target: proxy + "?sections=facts,other", problem: `"other\" is none of identity, facts, trusts, inbounds`},
		{target: service},
		{target: service + "?size=2", callers: inspect.CallersPage{Size: 2}},
		{target: service + "?size=2&offset=web-7", callers: inspect.CallersPage{Size: 2, After: "web-7"}},
		{target: service + "?size=1001", problem: `"1001\" is not a number from 1 to 1000`},
		{target: service + "?size=0", problem: `"0\" is not a number from 1 to 1000`},
		{target: service + "?offset=web-7", problem: `"field":"size"`},
	} {
		*got.sections, *got.callers = nil, inspect.CallersPage{}
		r := w.do(http.MethodGet, c.target, "", nil)
		body := text(r)
		switch {
		case c.problem != "" && (r.StatusCode != http.StatusBadRequest || !strings.Contains(body, c.problem)):
			t.Errorf("GET %s: %s %s, want 400 with %s", c.target, r.Status, body, c.problem)
		case c.problem == "" && r.StatusCode != http.StatusOK:
			t.Errorf("GET %s: %s %s", c.target, r.Status, body)
		case !slices.Equal(*got.sections, c.sections) || *got.callers != c.callers:
			t.Errorf("GET %s reads the sections %v and the callers %+v, want %v and %+v", c.target, *got.sections,
				*got.callers, c.sections, c.callers)
		}
	}
}
