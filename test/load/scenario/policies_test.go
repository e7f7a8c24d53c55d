package scenario

import (
	"encoding/json"
	"testing"

	"weft/resource"
)

func policiesRunOf(proxies, services, policies int) *policiesRun {
	return &policiesRun{run: &run{world: &world{Proxies: proxies, Services: services}},
		policies: policies}
}

// TestTheMeasuredPoliciesAreValid: each kind, and each edit of it, is another valid conf.
func TestTheMeasuredPoliciesAreValid(t *testing.T) {
	r := policiesRunOf(100, 20, 12)
	seen := map[string]bool{}
	for i := range r.policies {
		for edit := range 3 {
			o, of := r.policy(i, edit)
			if problems := of.Prepare(o); len(problems) > 0 {
				t.Errorf("policy %d has the problems %v", i, problems)
			}
			document, err := json.Marshal(resource.SpecOf(o))
			if err != nil {
				t.Fatal(err)
			}
			document = append(document, o.Key().String()...)
			if seen[string(document)] {
				t.Errorf("an edit changes nothing: %s", document)
			}
			seen[string(document)] = true
		}
	}
}

// TestTeams: every proxy has one team, and an edit of a policy of the mesh reaches the proxies whose team does not
// override it.
func TestTeams(t *testing.T) {
	r := policiesRunOf(100, 40, 4+12)
	sizes, all := map[string]int{}, 0
	for i := range r.Proxies {
		sizes[r.teamOf(i)]++
	}
	for of := range r.teams() {
		all += r.size(of)
	}
	if all != r.Proxies || len(sizes) != r.teams() || sizes[r.teamOf(0)] != r.size(0) ||
		r.size(0) != 9 || r.size(11) != 8 {
		t.Errorf("the teams are %v, of %d proxies", sizes, all)
	}
	// Policies 5, 9 and 13 are of the kind of policy 1, and about the services 1, 1 and 1 of 4.
	if n := r.overriding(1); n != r.size(1)+r.size(5)+r.size(9) {
		t.Errorf("%d proxies override policy 1", n)
	}
}

func TestMetricsAreRead(t *testing.T) {
	all := scrape([]byte("# HELP weft_proxy_groups Groups.\nweft_proxy_groups 5e+02\nweft_stage{result=\"a b\"} 2\n"))
	if all["weft_proxy_groups"] != 500 || all[`weft_stage{result="a b"}`] != 2 {
		t.Errorf("read %v", all)
	}
}
