package pki_test

import (
	"fmt"
	"testing"

	"weft/internal/pki"
	"weft/kind"
)

func TestSpiffeID(t *testing.T) {
	service := kind.Dataplane{Networking: kind.Networking{Inbound: []kind.Inbound{
		{Port: 1, State: kind.Ignored, Tags: map[string]string{kind.ServiceTag: "backend"}},
		{Port: 2, Tags: map[string]string{kind.ServiceTag: "admin"}},
	}}}
	pod := map[string]string{kind.PodUIDLabel: "1", kind.NamespaceLabel: "shop", kind.ServiceAccountLabel: "web",
		kind.WorkloadLabel: "other"}
	for _, c := range []struct {
		name         string
		domain, path string
		labels       map[string]string
		dp           kind.Dataplane
		want         string
		wantErr      string
	}{
		{name: "the label names the workload", labels: map[string]string{kind.WorkloadLabel: "web"}, dp: service,
			want: "spiffe://default.east.mesh.local/workload/web"},
		{name: "else the first inbound's service, an ignored one's too", dp: service,
			want: "spiffe://default.east.mesh.local/workload/backend"},
		{name: "else the Dataplane's name",
			want: "spiffe://default.east.mesh.local/workload/web-1"},
		{name: "templates of one's own", domain: "{{.Zone}}.corp", path: `/team/{{ label "team" }}/{{ .Workload }}-x`,
			labels: map[string]string{"team": "A_1", kind.WorkloadLabel: "v1.2"},
			want:   "spiffe://east.corp/team/A_1/v1.2-x"},
		{name: "a slash in a value makes no second segment", labels: map[string]string{kind.WorkloadLabel: "a/b"},
			wantErr: `"a/b"`},
		{name: "two dots do not climb", labels: map[string]string{kind.WorkloadLabel: ".."},
			wantErr: "spec.spiffeID.path"},
		{name: "a dot in a value makes no other trust domain", domain: `{{ label "team" }}.corp`,
			labels: map[string]string{"team": "root.evil"}, wantErr: `"root.evil"`},
		{name: "an upper case letter is no trust domain's", domain: "{{ .Workload }}.corp",
			labels: map[string]string{kind.WorkloadLabel: "Web"}, wantErr: `"Web"`},
		{name: "a value is not read as a template again", labels: map[string]string{kind.WorkloadLabel: "{{.Mesh}}"},
			wantErr: "{{.Mesh}}"},
		{name: "a Pod", labels: pod,
			want: "spiffe://default.east.mesh.local/ns/shop/sa/web"},
		{name: "a Pod in a template of one's own", path: "/{{ .Namespace }}-{{ .ServiceAccount }}", labels: pod,
			want: "spiffe://default.east.mesh.local/shop-web"},
		{name: "labels of a Pod on a machine", path: "/ns/{{ .Namespace }}",
			labels:  map[string]string{kind.NamespaceLabel: "shop", kind.ServiceAccountLabel: "web"},
			wantErr: "{{ .Namespace }} is of a Pod"},
		{name: "a label that is missing", path: `/{{ label "team" }}`, wantErr: `no label "team"`},
		{name: "a name that is unknown", path: "/{{ .Pod }}", wantErr: `"/{{ .Pod }}" is not a template`},
		{name: "a loop", path: "/{{ range 1000000000 }}{{ end }}", wantErr: "is not a template"},
		{name: "a template that does not end", path: "/{{ .Mesh", wantErr: "is not a template"},
		{name: "a path without its slash", path: "{{ .Workload }}", wantErr: "spec.spiffeID.path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := &kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: c.domain, Path: c.path}}
			got, _, err := pki.SpiffeID(spec, "default", "east", "web-1", c.labels, &c.dp)
			if c.wantErr != "" {
				wantError(t, err, c.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSpiffeIDReturnsTheTrustDomain(t *testing.T) {
	_, domain, err := pki.SpiffeID(&kind.MeshIdentity{}, "m", "z", "n", nil, &kind.Dataplane{})
	if err != nil || domain != "m.z.mesh.local" {
		t.Errorf("trust domain is %q (%v), want m.z.mesh.local", domain, err)
	}
}

func TestServiceIDs(t *testing.T) {
	inbound := func(service string, state kind.InboundState) kind.Inbound {
		return kind.Inbound{State: state, Tags: map[string]string{kind.ServiceTag: service}}
	}
	type inbounds = []kind.Inbound
	for _, c := range []struct {
		name   string
		labels map[string]string
		dp     kind.Networking
		want   string
	}{
		{"a service", nil, kind.Networking{Inbound: inbounds{inbound("web_ns_svc_80", "")}},
			"[spiffe://m/web_ns_svc_80]"},
		{"an Ignored one too", nil,
			kind.Networking{Inbound: inbounds{inbound("web", kind.Ignored), inbound("web-preview", kind.Ready)}},
			"[spiffe://m/web spiffe://m/web-preview]"},
		{"a workload", map[string]string{kind.WorkloadLabel: "web"}, kind.Networking{Inbound: inbounds{{}}},
			"[spiffe://m/workload/web]"},
		{"neither", nil, kind.Networking{}, "[spiffe://m/workload/dp]"},
		{"an egress", map[string]string{kind.WorkloadLabel: "web"},
			kind.Networking{ZoneEgress: &kind.ZoneEgressSection{}}, "[spiffe://m/zone-egress]"},
		{"both zone proxies", nil, kind.Networking{ZoneEgress: &kind.ZoneEgressSection{},
			ZoneIngress: &kind.ZoneIngressSection{}}, "[spiffe://m/zone-egress spiffe://m/zone-ingress]"},
		{"an egress that is a service", nil, kind.Networking{Inbound: inbounds{inbound("web", "")},
			ZoneEgress: &kind.ZoneEgressSection{}}, "[spiffe://m/web]"},
		{"who passes for an egress", nil, kind.Networking{Inbound: inbounds{inbound("zone-egress", "")}}, "zone proxy"},
		{"a name that climbs", nil, kind.Networking{Inbound: inbounds{inbound("..", "")}},
			`".." of the mtls of mesh m`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, err := pki.ServiceIDs("m", "dp", c.labels, &kind.Dataplane{Networking: c.dp})
			if err != nil {
				wantError(t, err, c.want)
			} else if got := fmt.Sprint(ids); got != c.want {
				t.Errorf("the names are %s, want %s", got, c.want)
			}
		})
	}
}
