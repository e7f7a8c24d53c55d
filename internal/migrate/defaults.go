package migrate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/kind"
)

// madeForEachMesh are the policies that Kuma makes with each mesh, by kind and by name without the mesh: the specs that
// its releases write. An operator may have changed one, or have given an own policy such a name: only what is equal is
// Kuma's. (Kuma, "Mesh", default policies; releases 2.7 to 2.14 and the 3.0 preview.)
var madeForEachMesh = map[string][]string{
	"MeshTimeout/mesh-timeout-all": {
		`{targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, default: ` +
			receivedTimeouts + `}], to: [{targetRef: {kind: Mesh}, default: ` + sentTimeouts + `}]}`,
		`{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: ` + receivedTimeouts +
			`}], to: [{targetRef: {kind: Mesh}, default: ` + sentTimeouts + `}]}`,
		`{targetRef: {kind: Mesh}, rules: [{default: ` + receivedTimeouts + `}]}`,
	},
	"MeshTimeout/mesh-timeout-to-all": {
		`{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: ` + sentTimeouts + `}]}`,
	},
	"MeshTimeout/mesh-gateways-timeout-all": {
		`{targetRef: {kind: Mesh, proxyTypes: [Gateway]}, from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 5m, ` +
			`http: {streamIdleTimeout: 5s, requestHeadersTimeout: 500ms}}}], to: [{targetRef: {kind: Mesh}, default: ` +
			`{idleTimeout: 1h, http: {streamIdleTimeout: 5s}}}]}`,
	},
	"MeshCircuitBreaker/mesh-circuit-breaker-all": {
		`{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 1024, ` +
			`maxPendingRequests: 1024, maxRequests: 1024, maxRetries: 3}}}]}`,
	},
	"MeshRetry/mesh-retry-all": {
		`{targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {tcp: {maxConnectAttempt: 5}, http: ` +
			retries + `, grpc: ` + retries + `}}]}`,
	},
	"TrafficRoute/route-all": {
		`{sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: ` +
			`{destination: {kuma.io/service: "*"}, loadBalancer: {roundRobin: {}}}}`,
		`{sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: ` +
			`{destination: {kuma.io/service: "*"}}}`,
	},
}

const (
	receivedTimeouts = `{connectionTimeout: 10s, idleTimeout: 2h, http: {requestTimeout: 0s, streamIdleTimeout: 1h, ` +
		`maxStreamDuration: 0s}}`
	sentTimeouts = `{connectionTimeout: 5s, idleTimeout: 1h, http: {requestTimeout: 15s, streamIdleTimeout: 30m}}`
	retries      = `{numRetries: 5, perTryTimeout: 16s, backOff: {baseInterval: 25ms, maxInterval: 250ms}}`
)

// ofEachMesh reports whether the policy is one that Kuma makes with each mesh, as Kuma writes it.
func (o *object) ofEachMesh() bool {
	name, named := strings.CutSuffix(o.plainName(), "-"+o.mesh)
	if !named || o.mesh == "" {
		return false
	}
	for _, written := range madeForEachMesh[o.kind+"/"+name] {
		spec, err := decode([]byte(written))
		if err == nil && reflect.DeepEqual(normalized(spec), normalized(o.ofPolicy())) {
			return true
		}
	}
	return false
}

// ofPolicy are the fields that say what a policy does.
func (o *object) ofPolicy() map[string]any {
	if spec := mapping(o.fields["spec"]); spec != nil {
		return spec
	}
	fields := map[string]any{}
	for name, value := range o.fields {
		switch name {
		case "type", "mesh", "name", "labels", "kri", "creationTime", "modificationTime", "status":
		default:
			fields[name] = value
		}
	}
	return fields
}

// normalized returns a value in which equal durations are the same text.
func normalized(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, item := range value {
			out[name] = normalized(item)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range value {
			out = append(out, normalized(item))
		}
		return out
	case string:
		if d, err := time.ParseDuration(value); err == nil {
			return d.String()
		}
		return value
	}
	return fmt.Sprint(value)
}

// passthrough writes the field networking.outbound.passthrough of a Mesh as a MeshPassthrough, which every other one
// overrides: it targets the whole mesh, of which a policy of the mesh in the export decides instead. A MeshPassthrough
// without a mode has the one that Kuma takes for it, which this one would replace.
func (t *translation) passthrough(mesh *object) {
	outbound := mapping(mapping(mesh.spec()["networking"])["outbound"])
	if outbound["passthrough"] != false {
		return
	}
	const at = "networking.outbound.passthrough"
	for _, o := range t.objects {
		if o.kind != kind.MeshPassthroughs.Name || o.mesh != mesh.name || o.whole() ||
			o.label("kuma.io/effect") == "shadow" {
			continue
		}
		conf := mapping(o.spec()["default"])
		if conf != nil && conf["passthroughMode"] == nil {
			conf["passthroughMode"] = kind.PassthroughMatched
		}
		ref := mapping(o.spec()["targetRef"])
		if of := text(ref["kind"]); (of == "" || of == "Mesh") && len(list(ref["proxyTypes"])) == 0 {
			if _, ok := o.ofNamespace(); !ok && conf != nil {
				mesh.note(Adapted, at, fmt.Sprintf("has no effect, since %s is about every proxy", o), "")
				return
			}
		}
	}
	name := "outbound-passthrough-" + mesh.name
	for slices.ContainsFunc(t.objects, func(o *object) bool { return o.mesh == mesh.name && o.name == name }) {
		name += "-0"
	}
	o := &object{source: mesh.source, kind: kind.MeshPassthroughs.Name, mesh: mesh.name, name: name,
		fields: map[string]any{"type": kind.MeshPassthroughs.Name, "mesh": mesh.name, "name": name,
			"spec": map[string]any{"targetRef": map[string]any{"kind": "Mesh"},
				"default": map[string]any{"passthroughMode": kind.PassthroughNone}}}}
	t.objects = append(t.objects, o)
	mesh.note(Adapted, at, fmt.Sprintf("is written as %s", o), "")
}
