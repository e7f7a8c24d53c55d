package crd

import (
	"encoding/json"
	"reflect"
	"slices"

	"weft/internal/store/kube"
	"weft/kind"
	"weft/resource"
)

// Types of the Kubernetes Secrets that users write.
const (
	secretType       = "system.kuma.io/secret"
	globalSecretType = "system.kuma.io/global-secret"
)

// KindOfSecret returns the kind of the rows that Kubernetes Secrets of a type have: [kube.RecordKind] for the control
// plane's own rows, and empty for a Secret of others.
func KindOfSecret(of string) string {
	switch of {
	case secretType:
		return kind.Secrets.Name
	case globalSecretType:
		return kind.GlobalSecrets.Name
	case kube.PrivateType:
		return kube.RecordKind
	}
	return ""
}

// Rows returns where the rows of each kind are on the API server.
func Rows() []kube.Kind {
	var all []kube.Kind
	for _, d := range kind.All() {
		info := d.Describe()
		k := kube.Kind{
			Name: info.Name, Meshed: info.Scope == resource.Mesh, StatusOf: info.StatusOf,
			Owner: kind.OwnerKind(info), Normal: normal(d),
		}
		switch {
		case info.Name == kind.Secrets.Name:
			k.SecretType = secretType
		case info.Name == kind.GlobalSecrets.Name:
			k.SecretType = globalSecretType
		case info.Name == kind.Instances.Name:
			k.Lease = instanceLease
		case info.Name == kind.Leaderships.Name:
			k.Lease = leaderLease
		case info.Encrypted:
			k.Private = true
		case !info.Hidden:
			k.Plural, k.Namespaced = Plural(info), !slices.Contains(clusterScoped, info.Name)
			k.System = k.Namespaced && kind.OfOperators(info.Name)
			k.MeshField = info.Flat && k.Meshed
		}
		all = append(all, k)
	}
	return all
}

// LeaderLease is the name of the Lease of the leadership, which Kuma's control planes have too.
const LeaderLease = "cp-leader-lease"

// instanceLease is the Lease of a replica, which the replica renews.
func instanceLease(name string, _ []byte) kube.Lease {
	return kube.Lease{Name: "weft-" + name, Holder: name}
}

// leaderLease is the Lease of the leadership. Its holder leads while the holder's own Lease exists.
func leaderLease(_ string, body []byte) kube.Lease {
	lease := kube.Lease{Name: LeaderLease}
	var row struct{ Spec kind.Leadership }
	if json.Unmarshal(body, &row) == nil {
		lease.Holder, lease.Transitions = row.Spec.Holder, row.Spec.Term
	}
	return lease
}

// normal returns a body with the fields in the order of the kind, in which the control plane compares bodies. A body
// with fields that this release does not know keeps the API server's order, since a newer control plane may have sent
// them.
func normal(d resource.Descriptor) func([]byte) []byte {
	open := mayBeNewer(d.Describe())
	return func(body []byte) []byte {
		o, err := resource.FromBody(d, resource.Meta{}, body)
		if err != nil {
			return body // the reader of the row reports it
		}
		ordered, err := resource.Body(o)
		if err != nil || open && !hasFields(ordered, body) {
			return body
		}
		return ordered
	}
}

// hasFields reports whether a document has all fields of another one that are not empty.
func hasFields(doc, other []byte) bool {
	var a, b any
	return json.Unmarshal(doc, &a) == nil && json.Unmarshal(other, &b) == nil && covers(a, b)
}

func covers(a, b any) bool {
	switch b := b.(type) {
	case map[string]any:
		a, _ := a.(map[string]any)
		for name, value := range b {
			if found, ok := a[name]; !ok && !empty(value) || ok && !covers(found, value) {
				return false
			}
		}
	case []any:
		a, _ := a.([]any)
		for i, value := range b {
			if i >= len(a) || !covers(a[i], value) {
				return false
			}
		}
	}
	return true
}

// empty reports whether a value is one that the Go types omit.
func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || reflect.ValueOf(v).IsZero()
}
