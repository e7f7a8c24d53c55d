package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/access"
	"weft/kind"
	"weft/resource"
)

// actors is an API whose actions have a group each, with the same name.
type actors struct {
	*world
	handler http.Handler
	tokens  map[string]string
}

func newActors(t *testing.T) *actors {
	w := newWorld(t, newStore(t))
	config := w.config()
	config.Guard.Rules = access.Rules{}
	for _, d := range access.Actions {
		config.Guard.Rules[d.Action] = access.Rule{Groups: []string{string(d.Action), access.AdminGroup}}
	}
	return &actors{world: w, handler: New(config), tokens: map[string]string{}}
}

// as sends a request of a user in some groups, separated by commas.
func (a *actors) as(groups, method, path, body string) *httptest.ResponseRecorder {
	if a.tokens[groups] == "" {
		a.tokens[groups] = text(a.do("POST", "/tokens/user", fmt.Sprintf(
			`{"name":"ann","groups":["%s"],"validFor":"1h"}`, strings.ReplaceAll(groups, ",", `","`)), nil))
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.7:4000"
	r.Header.Set("Authorization", "Bearer "+a.tokens[groups])
	recorder := httptest.NewRecorder()
	a.handler.ServeHTTP(recorder, r)
	return recorder
}

// TestWritersByKind: each kind has one action, by which its resources are written and deleted on every path, in a dry
// run and in a diff. The error of another user has the kind, the action and the setting.
func TestWritersByKind(t *testing.T) {
	a := newActors(t)
	a.put(t, "/meshes/default", `{"type":"Mesh"}`)
	actions := map[string]access.Action{"Secret": access.AdminResources, "GlobalSecret": access.AdminResources}
	for _, name := range strings.Fields("Mesh Zone ZoneIngress ZoneEgress MeshIdentity MeshTrust MeshExternalService " +
		"MeshMultiZoneService HostnameGenerator MeshProxyPatch ContainerPatch") {
		actions[name] = access.OperatorResources
	}
	roles := []string{"read", "write", "operatorResources", "adminResources", "write,operatorResources",
		access.AdminGroup}
	for _, d := range kind.Written() {
		info := d.Describe()
		action, ok := actions[info.Name]
		if !ok {
			action = access.Write
		}
		document := example(t, info)
		for _, role := range roles {
			groups := strings.Split(role, ",")
			allowed := slices.Contains(groups, string(action)) || role == access.AdminGroup
			check := func(what string, got *httptest.ResponseRecorder, allowed bool) {
				t.Helper()
				denied := got.Code == http.StatusForbidden && !strings.Contains(got.Body.String(), "names the Secret")
				if denied == allowed {
					t.Errorf("%s, %s: %d %s", role, what, got.Code, got.Body)
				}
				if allowed {
					return
				}
				for _, part := range []string{`user \"ann\"`, info.Name, "the action is " + string(action),
					action.Variable("USERS"), action.Variable("GROUPS")} {
					if !strings.Contains(got.Body.String(), part) {
						t.Errorf("%s, %s: the error lacks %s: %s", role, what, part, got.Body)
					}
				}
			}
			for _, segment := range info.Segments() {
				_, own := collections(info, segment)
				path := strings.Replace(own, "{mesh}", "default", 1) + "/absent"
				check("PUT "+path, a.as(role, "PUT", path+"?dryRun=true", "{}"), allowed)
				check("DELETE "+path, a.as(role, "DELETE", path, ""), allowed)
			}
			if !slices.Contains(groups, "write") && role != access.AdminGroup {
				continue // a diff takes write in any case
			}
			key := ResourceName{Type: info.Name, Name: "absent"}
			if info.Scope == resource.Mesh {
				key.Mesh = "default"
			}
			role := role + ",read"
			check("diff of "+info.Name, a.as(role, "POST", "/_diff", `{"apply":[`+document+`]}`), allowed)
			check("diff without "+info.Name, a.as(role, "POST", "/_diff", fmt.Sprintf(
				`{"delete":[{"type":%q,"mesh":%q,"name":"absent"}]}`, key.Type, key.Mesh)), allowed)
		}
	}
}

// example returns the example of a kind as JSON.
func example(t *testing.T, info *resource.Info) string {
	t.Helper()
	document, err := os.ReadFile("../../examples/kinds/" + strings.ToLower(info.Name) + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestOperationsOnAWholeMesh: what concerns all services or a zone, and is no resource, takes the action too.
func TestOperationsOnAWholeMesh(t *testing.T) {
	a := newActors(t)
	for _, path := range []string{"/_sni", "/zones/east/_replace"} {
		for role, want := range map[string]bool{"read": false, "write": false, "operatorResources": true} {
			got := a.as(role, "POST", path, `{}`)
			denied := got.Code == http.StatusForbidden && strings.Contains(got.Body.String(), "operatorResources")
			if denied == want {
				t.Errorf("%s, %s: %d %s", role, path, got.Code, got.Body)
			}
		}
	}
}

// TestWhoVouchesForADataplane: a Dataplane that an operator writes is vouched for. Another writer vouches for nothing,
// keeps the vouchers of others, and changes no fact that has one.
func TestWhoVouchesForADataplane(t *testing.T) {
	const path = "/meshes/default/dataplanes/bank"
	dataplane := func(workload, more string) string {
		return `{"type":"Dataplane","labels":{"kuma.io/workload":"` + workload + `"},"networking":{` +
			`"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"bank"}}]` + more + `}}`
	}
	const egress = `,"zoneEgress":{"address":"10.0.0.1","port":3}`
	const user, operator = "write,read", "write,operatorResources"
	facts := []string{"address 10.0.0.1", "label kuma.io/workload=bank", "name bank", "service bank"}
	for name, steps := range map[string][]struct {
		role, body string
		status     int
		vouched    []string // by an operator, afterwards
	}{
		"a user": {{user, dataplane("bank", egress), 201, nil}, {user, dataplane("web", ""), 200, nil}},
		"an operator": {{operator, dataplane("bank", ""), 201, facts}, {user, dataplane("bank", ""), 200, facts},
			{user, dataplane("web", ""), 403, facts}, {user, dataplane("bank", egress), 403, facts},
			{operator, dataplane("web", ""), 200, []string{"address 10.0.0.1", "label kuma.io/workload=web",
				"name bank", "service bank"}}},
		// An operator does not vouch for what the user wrote before, since an apply shows no stored value.
		"a user, then an operator": {{user, dataplane("bank", ""), 201, nil},
			{operator, dataplane("bank", ""), 200, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newActors(t)
			a.put(t, "/meshes/default", `{"type":"Mesh"}`)
			for i, step := range steps {
				if step.role == user && i > 0 { // a diff and a dry run have the result of the write
					named := strings.Replace(step.body, `"Dataplane"`, `"Dataplane","mesh":"default","name":"bank"`, 1)
					dryRun := a.as(user, "PUT", path+"?dryRun=true", step.body)
					diff := a.as(user, "POST", "/_diff", `{"apply":[`+named+`]}`)
					if dryRun.Code != step.status || diff.Code != step.status {
						t.Errorf("step %d: the dry run %d %s, the diff %d %s", i, dryRun.Code, dryRun.Body, diff.Code,
							diff.Body)
					}
				}
				got := a.as(step.role, "PUT", path, step.body)
				if got.Code != step.status {
					t.Fatalf("step %d: %d %s", i, got.Code, got.Body)
				}
				reason := map[bool]string{true: "the write changes networking.zoneEgress",
					false: "the label kuma.io/workload: bank"}[strings.Contains(step.body, "zoneEgress")]
				if got.Code == 403 && (!strings.Contains(got.Body.String(), reason) ||
					!strings.Contains(got.Body.String(), access.OperatorResources.Variable("GROUPS"))) {
					t.Errorf("step %d: the error is %s", i, got.Body)
				}
				row, err := a.store.Get(t.Context(), kind.Dataplanes.Key("default", "bank"))
				if err != nil {
					t.Fatal(err)
				}
				o, err := resource.FromBody(kind.Dataplanes, resource.Meta{Mesh: "default", Name: "bank"}, row.Body)
				if err != nil {
					t.Fatal(err)
				}
				if vouched := o.Envelope().Vouched.Operator; !slices.Equal(vouched, step.vouched) {
					t.Errorf("step %d: an operator vouches for %q, want %q", i, vouched, step.vouched)
				}
			}
		})
	}
}
