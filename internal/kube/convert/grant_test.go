package convert

import (
	"slices"
	"testing"

	"weft/kind"
)

// A ReferenceGrant grants to producers' policies what its kinds name; services of operators in the system namespace
// alone.
func TestGrantsOfPolicies(t *testing.T) {
	const text = `{"metadata": {"name": "g", "namespace": "pay"}, "spec": {
		"from": [{"group": "kuma.io", "kind": "MeshHTTPRoute", "namespace": "shop"},
			{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}],
		"to": [{"group": "", "kind": "Service", "name": "api"}, {"group": "kuma.io", "kind": "MeshExternalService"},
			{"group": "", "kind": "Secret"}]}}`
	grant, err := DecodeReferenceGrant([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	service := kind.ReferenceGrant{FromKind: "MeshHTTPRoute", FromNamespace: "shop", Namespace: "pay",
		ToKind: "MeshService", ToName: "api"}
	external := service
	external.ToKind, external.ToName = "MeshExternalService", ""
	if got := grant.OfPolicies("system"); !slices.Equal(got, []kind.ReferenceGrant{service}) {
		t.Errorf("in a namespace, it grants %+v", got)
	}
	if got := grant.OfPolicies("pay"); !slices.Equal(got, []kind.ReferenceGrant{service, external}) {
		t.Errorf("in the system namespace, it grants %+v", got)
	}
}
