package pki

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"weft/kind"
	"weft/resource"
)

// PodClaims are what the token of a Pod's service account proves: one Pod of Kubernetes.
type PodClaims struct {
	Namespace, Name, UID string
	ServiceAccount       string // its name, in the namespace of the Pod
}

// Proxy returns the name of the Dataplane of the Pod, or of its ZoneIngress or ZoneEgress.
func (p *PodClaims) Proxy() string { return p.Name + "." + p.Namespace }

// String returns "NAMESPACE/NAME".
func (p *PodClaims) String() string { return p.Namespace + "/" + p.Name }

// Names returns nil if the token is valid for a proxy of this name. Pods with the same ServiceAccount have different
// names.
func (p *PodClaims) Names(name string) error {
	if name == p.Proxy() {
		return nil
	}
	return fmt.Errorf("the token is of the Pod %s, and the proxy says it is %q; a Pod runs the proxy %q alone", p,
		name, p.Proxy())
}

// Owns reports whether the resource of a proxy is the one of the Pod: another Pod may have had its name.
func (p *PodClaims) Owns(o resource.Any) bool {
	return o.Key().Name == p.Proxy() && o.Envelope().Label(kind.PodUIDLabel) == p.UID
}

// DataplaneClaims returns what the token is worth for the Dataplane of the Pod: its name. The control plane, which
// writes that Dataplane, vouches for its other facts.
func (p *PodClaims) DataplaneClaims(mesh string) *DataplaneClaims {
	return &DataplaneClaims{Mesh: mesh, Name: p.Proxy()}
}

// IsOwnToken reports whether a token states to be one of this product: a dataplane token or a zone token. It verifies
// nothing.
func IsOwnToken(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > MaxToken {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var stated struct{ Mesh, Zone *string }
	return json.Unmarshal(payload, &stated) == nil && (stated.Mesh != nil || stated.Zone != nil)
}
