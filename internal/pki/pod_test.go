package pki_test

import (
	"slices"
	"testing"

	"weft/internal/pki"
	"weft/kind"
)

// TestPodClaims: a token proves one Pod, by its name and its UID. Whatever else Pods have in common does not count.
func TestPodClaims(t *testing.T) {
	pod := pki.PodClaims{Namespace: "shop", Name: "web-1", UID: "u1", ServiceAccount: "default"}
	for name, want := range map[string]bool{"web-1.shop": true, "web-2.shop": false, "web-1.other": false,
		"web-1": false, "": false} {
		if got := pod.Names(name) == nil; got != want {
			t.Errorf("the token is valid for %q: %v", name, got)
		}
	}
	for _, c := range []struct {
		name, uid string
		want      bool
	}{{"web-1.shop", "u1", true}, {"web-1.shop", "u2", false}, {"web-1.shop", "", false}, {"web-2.shop", "u1", false}} {
		o := kind.Dataplanes.Make("default", c.name, kind.Dataplane{})
		o.Labels = map[string]string{kind.PodUIDLabel: c.uid, kind.ServiceAccountLabel: "default"}
		if got := pod.Owns(o); got != c.want {
			t.Errorf("the Pod owns %s of %q: %v", c.name, c.uid, got)
		}
	}
	for token, want := range map[string]bool{
		"a.eyJNZXNoIjoiZGVmYXVsdCJ9.c": true, "a.eyJab25lIjoiZWFzdCJ9.c": true, "a.eyJhdWQiOlsid2VmdCJdfQ.c": false,
		"a.b.c": false, "letmein": false, "": false,
	} {
		if got := pki.IsOwnToken(token); got != want {
			t.Errorf("%q is a token of this product: %v", token, got)
		}
	}
}

// TestSpiffeFactsOfAPod: the SPIFFE ID of a Pod rests on its UID, for which the control plane alone vouches.
func TestSpiffeFactsOfAPod(t *testing.T) {
	o := kind.Dataplanes.Make("default", "web-1.shop", kind.Dataplane{})
	o.Labels = map[string]string{kind.PodUIDLabel: "u1", kind.ServiceAccountLabel: "web", kind.NamespaceLabel: "shop",
		kind.WorkloadLabel: "web", "app": "web"}
	uid, account := kind.LabelFact(kind.PodUIDLabel, "u1"), kind.LabelFact(kind.ServiceAccountLabel, "web")
	for path, want := range map[string][]string{
		"":                           {uid, account},
		"/ns/{{ .Namespace }}":       {uid, account},
		"/{{ .ServiceAccount }}":     {uid, account},
		"/workload/{{ .Workload }}":  {kind.LabelFact(kind.WorkloadLabel, "web")},
		`/app/{{ label "app" }}/all`: {kind.LabelFact("app", "web")},
	} {
		got := pki.SpiffeFacts(&kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{Path: path}}, o)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%q rests on %q, want %q", path, got, want)
		}
	}
}

// TestSpiffeFactsOfRoleLabels: a MeshIdentity that selects zone proxies by a computed label rests on their section, for
// which a token of another role does not vouch.
func TestSpiffeFactsOfRoleLabels(t *testing.T) {
	o := kind.Dataplanes.Make("default", "out", kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}}})
	o.Labels = o.Spec.Networking.RoleLabels(kind.Kubernetes)
	for _, label := range []string{kind.ListenerZoneEgressLabel, kind.ZoneProxyTypeLabel} {
		got := pki.SpiffeFacts(&kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{
				MatchLabels: map[string]string{label: o.Label(label)}}},
			SpiffeID: &kind.SpiffeIDTemplate{Path: "/egress"},
		}, o)
		if want := kind.SectionFacts(&o.Spec.Networking); !slices.Equal(got, want) {
			t.Errorf("a selector by %s rests on %q, want %q", label, got, want)
		}
	}
}
