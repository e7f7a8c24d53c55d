package kind_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/kind"
)

// TestMembership walks the rules of the requirement document Mesh Membership. The Dataplanes are web-1 of the mesh
// demo, in the zone east.
func TestMembership(t *testing.T) {
	const (
		one = `{networking: {inbound: [{port: 1, tags: {kuma.io/service: web, team: a}}]}}`
		two = `{networking: {inbound: [{port: 1, tags: {kuma.io/service: web, team: a}}, {port: 2, tags: ` +
			`{kuma.io/service: api, team: b}}]}}`
		ignored = `{networking: {inbound: [{port: 1, tags: {team: a}}, {port: 2, state: Ignored, tags: {team: b}}]}}`
		none    = `{networking: {zoneIngress: {port: 1}}}`
		reason  = "mesh demo does not admit Dataplane web-1: "
	)
	for name, test := range map[string]struct {
		rules, dataplane, want string
	}{
		"no rule":                      {`null`, one, ""},
		"no rule in it":                {`{}`, one, ""},
		"an empty list allows anybody": {`{allowed: []}`, one, ""},
		"a tag":                        {`{allowed: [{tags: {team: a}}]}`, one, ""},
		"another value": {`{allowed: [{tags: {team: b}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {team: b} (team is a)"},
		"all tags": {`{allowed: [{tags: {team: a, kuma.io/service: web}}]}`, one, ""},
		"not all tags": {`{allowed: [{tags: {team: a, kuma.io/service: api}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {kuma.io/service: " +
				"api, team: a} (kuma.io/service is web)"},
		"entries are alternatives": {`{allowed: [{tags: {team: b}}, {tags: {team: a}}]}`, one, ""},
		"any value":                {`{allowed: [{tags: {team: "*"}}]}`, one, ""},
		"any value of what is not there": {`{allowed: [{tags: {owner: "*"}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {owner: *} (no owner)"},
		"every inbound must be allowed": {`{allowed: [{tags: {team: a}}]}`, two,
			"networking.inbound[1] is allowed by none of dataplaneProxyMembership.allowed: {team: a} (team is b)"},
		"each inbound by an entry of its own": {`{allowed: [{tags: {team: a}}, {tags: {team: b}}]}`, two, ""},
		"an Ignored inbound too": {`{allowed: [{tags: {team: a}}]}`, ignored,
			"networking.inbound[1] is allowed by none of dataplaneProxyMembership.allowed: {team: a} (team is b)"},
		"an Ignored inbound is blocked too": {`{blocked: [{tags: {team: b}}]}`, ignored,
			"networking.inbound[1] is blocked by dataplaneProxyMembership.blocked[0] {team: b}"},
		"blocked wins": {`{allowed: [{tags: {team: a}}], blocked: [{tags: {team: x}}, {tags: {kuma.io/service: web}}]}`,
			one,
			"networking.inbound[0] is blocked by dataplaneProxyMembership.blocked[1] {kuma.io/service: web}"},
		"blocked needs no allowed": {`{blocked: [{tags: {team: b}}]}`, one, ""},
		"the environment is known": {`{allowed: [{tags: {kuma.io/environment: universal}}]}`, one, ""},
		"another environment": {`{allowed: [{tags: {kuma.io/environment: kubernetes}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {kuma.io/environment: " +
				"kubernetes} (kuma.io/environment is universal)"},
		"the zone is known":       {`{allowed: [{tags: {kuma.io/zone: east, team: a}}]}`, one, ""},
		"another zone":            {`{blocked: [{tags: {kuma.io/zone: west}}]}`, one, ""},
		"labels without inbounds": {`{allowed: [{tags: {role: web}}]}`, none, ""},
		"labels with inbounds": {`{allowed: [{tags: {role: web}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {role: web} (no role)"},
		"other labels": {`{allowed: [{tags: {role: other}}]}`, none,
			"by its labels it is allowed by none of dataplaneProxyMembership.allowed: {role: other} (role is web)"},
		"the environment of a zone proxy": {`{allowed: [{tags: {kuma.io/environment: universal, kuma.io/zone: east}}]}`,
			none, ""},
		"a blocked zone proxy": {`{blocked: [{tags: {kuma.io/environment: "*"}}]}`, none,
			"by its labels it is blocked by dataplaneProxyMembership.blocked[0] {kuma.io/environment: *}"},
		"Kubernetes allows no machine": {`{allowed: [{kubernetes: {namespace: {name: ns-1}}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {kubernetes: " +
				"{namespace.name: ns-1}} (environment is universal)"},
		"Kubernetes blocks no machine": {`{blocked: [{kubernetes: {zone: east}}]}`, one, ""},
		"many rules": {`{allowed: [{tags: {a: b}}, {tags: {a: c}}, {tags: {a: d}}, {tags: {a: e}}, {tags: {a: f}}, ` +
			`{tags: {a: g}}]}`, one,
			"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {a: b} (no a), " +
				"{a: c} (no a), {a: d} (no a), {a: e} (no a), {a: f} (no a), and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			var rules *kind.Membership
			read(t, test.rules, &rules)
			var spec kind.Dataplane
			read(t, test.dataplane, &spec)
			dp := kind.Dataplanes.Make("demo", "web-1", spec)
			dp.Labels = map[string]string{"role": "web", kind.EnvLabel: kind.Universal}
			want := test.want
			if want != "" {
				want = reason + want
			}
			if got := rules.NotAdmittedReason(dp, "east", kind.Exemption{Tags: true}); got != want {
				t.Errorf("the reason is\n%q, want\n%q", got, want)
			}
		})
	}
}

// A rule allows by what somebody vouches for and blocks by what a Dataplane states, and "*" is any stated value.
func TestMembershipNeedsVouchers(t *testing.T) {
	const noVoucher = ", for which neither its token nor an operator vouches"
	const remedy = "; give its agent a token that vouches for its tags and labels: `weft generate dataplane-token " +
		"--dataplane-file FILE`"
	tagged := kind.Dataplane{Networking: kind.Networking{Inbound: []kind.Inbound{{Port: 1,
		Tags: map[string]string{"team": "a", "kuma.io/mesh": "m", kind.ZoneLabel: "east"}}}}}
	var labels kind.Dataplane
	asPod := map[string]string{kind.EnvLabel: kind.Kubernetes, kind.NamespaceLabel: "shop", "app": "web",
		kind.NamespaceLabelsLabel: kind.EncodeNamespaceLabels(map[string]string{"team": "a"})}
	for _, test := range []struct {
		rules  string
		spec   kind.Dataplane
		labels map[string]string
		claims string
		lacks  string // at the end of the reason; "-": it is admitted
	}{
		{`allowed: [{tags: {team: a}}]`, tagged, nil, kind.TagFact("team", "a"), "-"},
		{`allowed: [{tags: {team: a}}]`, tagged, nil, kind.TagFact("team", "b"), "(team is a" + noVoucher + ")" + remedy},
		{`allowed: [{tags: {team: a}}]`, tagged, nil, kind.LabelFact("team", "a"), "(team is a" + noVoucher + ")" + remedy},
		{`allowed: [{tags: {kuma.io/mesh: m}}]`, tagged, nil, "", "(kuma.io/mesh is m" + noVoucher + ")" + remedy},
		{`allowed: [{tags: {kuma.io/zone: east}}]`, tagged, nil, "", "-"},
		{`allowed: [{tags: {team: "*"}}]`, tagged, nil, "", "-"},
		{`blocked: [{tags: {team: a}}]`, tagged, nil, "", "dataplaneProxyMembership.blocked[0] {team: a}"},
		{`allowed: [{tags: {kuma.io/zone: east, kuma.io/environment: universal}}]`, labels, nil, "", "-"},
		{`allowed: [{tags: {team: a}}]`, labels, map[string]string{"team": "a"}, kind.LabelFact("team", "a"), "-"},
		{`allowed: [{tags: {team: a}}]`, labels, map[string]string{"team": "a"}, "", "(team is a" + noVoucher + ")" + remedy},
		{`allowed: [{tags: {kuma.io/display-name: web-1}}]`, labels, map[string]string{kind.DisplayName: "web-1"},
			kind.NameFact("web-1"), "-"},
		{`allowed: [{tags: {kuma.io/display-name: web-1}}]`, labels, map[string]string{kind.DisplayName: "web-1"}, "",
			"(kuma.io/display-name is web-1" + noVoucher + ")" + remedy},
		{`allowed: [{kubernetes: {pod: {labels: {app: web}}}}]`, labels, asPod, kind.LabelFact("app", "web"), "-"},
		{`allowed: [{kubernetes: {pod: {labels: {app: web}}}}]`, labels, asPod, "",
			"(Pod label app is web" + noVoucher + ")"},
		{`allowed: [{kubernetes: {namespace: {labels: {team: a}}}}]`, labels, asPod, "",
			"(namespace label team is a" + noVoucher + ")"},
		{`allowed: [{kubernetes: {namespace: {name: shop}}}]`, labels, asPod, "", "-"},
	} {
		var rules kind.Membership
		read(t, "{"+test.rules+"}", &rules)
		dp := kind.Dataplanes.Make("demo", "web-1", test.spec)
		dp.Labels = test.labels
		kind.VouchToken(nil, dp, []string{test.claims})
		reason := rules.NotAdmittedReason(dp, "east", kind.Exemption{Addresses: true})
		if test.lacks == "-" && reason != "" || test.lacks != "-" && !strings.HasSuffix(reason, test.lacks) {
			t.Errorf("%s with a voucher for %q: the reason is\n%q, want %q", test.rules, test.claims, reason,
				test.lacks)
		}
		blocks := len(rules.Blocked) > 0
		if reason := rules.NotAdmittedReason(dp, "east", kind.Exemption{Tags: true}); (reason != "") != blocks {
			t.Errorf("%s in a mesh that exempts tags: %q", test.rules, reason)
		}
	}
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// On Kubernetes, the namespace of a Pod, the labels of both and the zone decide. (Mesh Membership.)
func TestMembershipOfPods(t *testing.T) {
	pod := kind.Dataplanes.Make("m", "web-1.shop", kind.Dataplane{})
	pod.Labels = map[string]string{
		kind.EnvLabel: kind.Kubernetes, kind.NamespaceLabel: "shop", "app": "web", "empty": "",
		kind.NamespaceLabelsLabel: kind.EncodeNamespaceLabels(map[string]string{"team.example.com/owner": "a"}),
	}
	kind.VouchOperator(nil, pod)
	for rule, lacks := range map[string]string{
		`{namespace: {name: shop}}`:                                         "",
		`{namespace: {name: other}}`:                                        "namespace is shop",
		`{zone: east}`:                                                      "",
		`{zone: west}`:                                                      "zone is east",
		`{namespace: {name: shop}, zone: west}`:                             "zone is east",
		`{pod: {labels: {app: web}}}`:                                       "",
		`{pod: {labels: {app: api, tier: front, empty: "x"}}}`:              "Pod label app is web, Pod label empty is empty, no Pod label tier",
		`{namespace: {labels: {team.example.com/owner: a}}}`:                "",
		`{namespace: {labels: {team.example.com/owner: b}}}`:                "namespace label team.example.com/owner is a",
		`{namespace: {name: other, labels: {a: b}}}`:                        "namespace is shop, no namespace label a",
		`{namespace: {name: shop}, pod: {labels: {app: web}}, zone: east}`:  "",
		`{namespace: {name: other}, pod: {labels: {app: web}}, zone: west}`: "namespace is shop, zone is east",
	} {
		var m kind.Membership
		if err := yaml.Unmarshal([]byte(`allowed: [{kubernetes: `+rule+`}]`), &m); err != nil {
			t.Fatal(err)
		}
		reason, suffix := m.NotAdmittedReason(pod, "east", kind.Exemption{}), " ("+lacks+")"
		if lacks == "" && reason != "" || lacks != "" && !strings.HasSuffix(reason, suffix) {
			t.Errorf("%s: %q, want %q", rule, reason, suffix)
		}
		blocked := kind.Membership{Blocked: m.Allowed}
		if reason := blocked.NotAdmittedReason(pod, "east", kind.Exemption{}); (reason == "") != (lacks != "") {
			t.Errorf("blocked %s: %q", rule, reason)
		}
	}
}

// Before the Services of a Pod are known, a mesh rejects only what no inbound can mend. (Mesh Membership.)
func TestMembershipOfPodsBeforeTheirServices(t *testing.T) {
	labels := map[string]string{kind.EnvLabel: kind.Kubernetes, kind.NamespaceLabel: "shop", "app": "web"}
	for rules, want := range map[string]string{
		`{}`: "",
		`{allowed: [{kubernetes: {namespace: {name: shop}}}]}`: "",
		`{allowed: [{kubernetes: {namespace: {name: other}}}]}`: "it is allowed by none of " +
			"dataplaneProxyMembership.allowed: {kubernetes: {namespace.name: other}} (namespace is shop)",
		`{allowed: [{kubernetes: {namespace: {name: other}}}, {tags: {kuma.io/service: web}}]}`: "",
		`{allowed: [{tags: {kuma.io/service: "*"}}]}`:                                           "",
		`{allowed: [{tags: {k8s.kuma.io/namespace: shop, team: a}}]}`:                           "",
		`{allowed: [{tags: {k8s.kuma.io/namespace: other, team: a}}]}`: "it is allowed by none of " +
			"dataplaneProxyMembership.allowed: {k8s.kuma.io/namespace: other, team: a} (k8s.kuma.io/namespace is shop)",
		`{allowed: [{tags: {kuma.io/zone: west}}]}`: "it is allowed by none of " +
			"dataplaneProxyMembership.allowed: {kuma.io/zone: west} (kuma.io/zone is east)",
		`{allowed: [{tags: {kuma.io/environment: universal}}]}`: "it is allowed by none of " +
			"dataplaneProxyMembership.allowed: {kuma.io/environment: universal} (kuma.io/environment is kubernetes)",
		`{blocked: [{tags: {kuma.io/service: web}}]}`: "",
		`{blocked: [{tags: {k8s.kuma.io/namespace: shop}}]}`: "it is blocked by " +
			"dataplaneProxyMembership.blocked[0] {k8s.kuma.io/namespace: shop}",
		`{blocked: [{kubernetes: {pod: {labels: {app: web}}}}]}`: "it is blocked by " +
			"dataplaneProxyMembership.blocked[0] {kubernetes: {pod.labels: {app: web}}}",
	} {
		var m kind.Membership
		if err := yaml.Unmarshal([]byte(rules), &m); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "mesh m does not admit the Pod shop/web: " + want
		}
		if got := m.NotAdmittedEarly("m", "the Pod shop/web", labels, "east"); got != want {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
}

// TestMembershipOfNamespaces: a mesh excludes a namespace where it admits none of its Pods, whatever their labels and
// Services are.
func TestMembershipOfNamespaces(t *testing.T) {
	for rules, want := range map[string]string{
		`null`: "",
		`{allowed: [{kubernetes: {namespace: {labels: {team: a}}, pod: {labels: {app: web}}}}]}`: "",
		`{allowed: [{kubernetes: {namespace: {labels: {team: b}}, pod: {labels: {app: web}}}}]}`: "it is allowed by " +
			"none of dataplaneProxyMembership.allowed: {kubernetes: {namespace.labels: {team: b}, pod.labels: {app: " +
			"web}}} (namespace label team is a)",
		`{allowed: [{kubernetes: {namespace: {name: other}}}, {kubernetes: {pod: {labels: {app: web}}}}]}`: "",
		`{allowed: [{kubernetes: {pod: {labels: {k8s.kuma.io/namespace: other}}}}]}`: "it is allowed by none of " +
			"dataplaneProxyMembership.allowed: {kubernetes: {pod.labels: {k8s.kuma.io/namespace: other}}} (Pod label " +
			"k8s.kuma.io/namespace is shop)",
		`{blocked: [{kubernetes: {pod: {labels: {app: web}}}}]}`: "",
		`{blocked: [{kubernetes: {namespace: {name: shop}}}]}`: "it is blocked by " +
			"dataplaneProxyMembership.blocked[0] {kubernetes: {namespace.name: shop}}",
	} {
		var m *kind.Membership
		if err := yaml.Unmarshal([]byte(rules), &m); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "mesh m does not admit a Pod of the namespace shop: " + want
		}
		if got := m.NotAdmittedNamespace("m", "shop", map[string]string{"team": "a"}, "east"); got != want {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
}
