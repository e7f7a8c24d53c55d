package state

import (
	"errors"
	"fmt"

	"weft/kind"
	"weft/resource"
)

// ProxyKey identifies the proxy of a Dataplane or, without a mesh, that of a ZoneIngress or a ZoneEgress.
type ProxyKey struct {
	Type kind.ProxyType
	Mesh string
	Name string
}

// ZoneIngressProxy returns the key of the proxy of a ZoneIngress.
func ZoneIngressProxy(name string) ProxyKey { return ProxyKey{Type: kind.IngressProxy, Name: name} }

// ZoneEgressProxy returns the key of the proxy of a ZoneEgress.
func ZoneEgressProxy(name string) ProxyKey { return ProxyKey{Type: kind.EgressProxy, Name: name} }

// ParseProxyKey returns the key of the proxy in a request. Its type is "dataplane", "ingress" or "egress"; without one
// it is a Dataplane or, without a mesh, a ZoneIngress.
func ParseProxyKey(proxyType, mesh, name string) (ProxyKey, error) {
	key := ProxyKey{Type: kind.ProxyType(proxyType), Mesh: mesh, Name: name}
	switch proxyType {
	case "":
		if mesh == "" {
			key.Type = kind.IngressProxy
		}
		return key, nil
	case DataplaneType:
		key.Type = kind.DataplaneProxy
		if mesh == "" {
			return ProxyKey{}, errors.New("a proxy of the type dataplane belongs to a mesh, and this one names none")
		}
		return key, nil
	case string(kind.IngressProxy), string(kind.EgressProxy):
		if mesh != "" {
			return ProxyKey{},
				fmt.Errorf("a proxy of the type %s belongs to no mesh, and this one names the mesh %.64q; a zone "+
					"proxy of one mesh is a Dataplane", proxyType, mesh)
		}
		return key, nil
	}
	return ProxyKey{}, fmt.Errorf("the type of a proxy is %.64q, want %s, %s or %s", proxyType, DataplaneType,
		kind.IngressProxy, kind.EgressProxy)
}

// DataplaneType is the written type of a Dataplane's proxy.
const DataplaneType = "dataplane"

// String returns the proxy's node id, "default.web-1"; ".zi" for a proxy without a mesh.
func (k ProxyKey) String() string { return k.Mesh + "." + k.Name }

// proxyKinds are the kinds of a proxy's resource, of its listener status and of its insight.
var proxyKinds = map[kind.ProxyType]struct {
	resource resource.Descriptor
	serving  *resource.Kind[kind.DataplaneListenerStatus]
	insight  *resource.Kind[kind.DataplaneInsight]
}{
	kind.DataplaneProxy: {kind.Dataplanes, kind.DataplaneListenerStatuses, kind.DataplaneInsights},
	kind.IngressProxy:   {kind.ZoneIngresses, kind.ZoneIngressListenerStatuses, kind.ZoneIngressInsights},
	kind.EgressProxy:    {kind.ZoneEgresses, kind.ZoneEgressListenerStatuses, kind.ZoneEgressInsights},
}

// ProxyOf returns the proxy of a resource, a listener status or an insight; false: the kind is another one.
func ProxyOf(key resource.Key) (ProxyKey, bool) {
	for proxyType, kinds := range proxyKinds {
		if key.Kind == kinds.resource.Describe().Name || key.Kind == kinds.serving.Name ||
			key.Kind == kinds.insight.Name {
			return ProxyKey{proxyType, key.Mesh, key.Name}, true
		}
	}
	return ProxyKey{}, false
}

// Resource returns the key of the proxy's resource.
func (k ProxyKey) Resource() resource.Key {
	return resource.Key{Kind: proxyKinds[k.Type].resource.Describe().Name, Mesh: k.Mesh, Name: k.Name}
}

// ListenerStatusKind returns the kind of the proxy's listener status.
func (k ProxyKey) ListenerStatusKind() *resource.Kind[kind.DataplaneListenerStatus] {
	return proxyKinds[k.Type].serving
}

// InsightKind returns the kind of the proxy's insight.
func (k ProxyKey) InsightKind() *resource.Kind[kind.DataplaneInsight] {
	return proxyKinds[k.Type].insight
}

// ListenerStatusRow returns the key of the proxy's listener status.
func (k ProxyKey) ListenerStatusRow() resource.Key { return k.ListenerStatusKind().Key(k.Mesh, k.Name) }

// InsightRow returns the key of the proxy's insight.
func (k ProxyKey) InsightRow() resource.Key { return k.InsightKind().Key(k.Mesh, k.Name) }
