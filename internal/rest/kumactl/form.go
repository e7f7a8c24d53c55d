package kumactl

import (
	"encoding/json"
	"net/http"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// FormFor returns a resource's Universal form in the fields that the client of a request knows. kumactl 2 rejects what
// it reads where a policy has rules beside `to`, a limit could concern gateways, or an inbound has tags without a
// service, and reads sources of MeshExternalServices in an older form only. It prints the Kubernetes form as it is.
func FormFor(r *http.Request, o resource.Any, form resource.Form, body json.RawMessage) (json.RawMessage, error) {
	by, ok := ClientOf(r)
	if major, _, known := releaseOf(by.Release); !ok || !known || major != 2 || form != resource.Universal {
		return body, nil
	}
	var rewrite func(fields map[string]any)
	switch o.Key().Kind {
	case kind.MeshTimeouts.Name, kind.MeshCircuitBreakers.Name:
		rewrite = rulesAsFrom
	case kind.MeshRateLimits.Name:
		rewrite = sidecarTarget
	case kind.MeshExternalServices.Name:
		rewrite = olderSources
	case kind.Dataplanes.Name:
		rewrite = inboundsWithoutTags
	default:
		return body, nil
	}
	var document map[string]any
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	fields := document
	if !kind.ByName(o.Key().Kind).Describe().Flat {
		fields, _ = document["spec"].(map[string]any)
	}
	rewrite(fields)
	return json.Marshal(document)
}

// rulesAsFrom writes rules about every caller, beside `to`, as `from`. Admission reads both forms as the same policy. A
// rule about some callers has no other form.
func rulesAsFrom(spec map[string]any) {
	to, _ := spec["to"].([]any)
	rules, _ := spec["rules"].([]any)
	if len(to) == 0 || len(rules) == 0 {
		return
	}
	var from []any
	for _, item := range rules {
		rule, _ := item.(map[string]any)
		if rule["matches"] != nil {
			return
		}
		from = append(from, map[string]any{"targetRef": map[string]any{"kind": "Mesh"}, "default": rule["default"]})
	}
	delete(spec, "rules")
	spec["from"] = from
}

// sidecarTarget writes that a target of the mesh, or of tags, has no gateways. Admission drops the field, since there
// are none.
func sidecarTarget(spec map[string]any) {
	rules, _ := spec["rules"].([]any)
	target, ok := spec["targetRef"].(map[string]any)
	if !ok {
		target = map[string]any{"kind": "Mesh"}
	}
	if len(rules) == 0 || target["kind"] != "Mesh" && target["kind"] != "MeshSubset" {
		return
	}
	target["proxyTypes"] = []any{"Sidecar"}
	spec["targetRef"] = target
}

// inboundsWithoutTags omits the tags that the control plane sets where they are all that an inbound has. A write
// without them gets them again.
func inboundsWithoutTags(dataplane map[string]any) {
	networking, _ := dataplane["networking"].(map[string]any)
	inbounds, _ := networking["inbound"].([]any)
	for _, item := range inbounds {
		inbound, _ := item.(map[string]any)
		tags, _ := inbound["tags"].(map[string]any)
		if !admission.HasOwnTags(tags) {
			delete(inbound, "tags")
		}
	}
}

// olderSources writes the sources of certificates in the form of Kuma 2.
func olderSources(spec map[string]any) {
	tls, _ := spec["tls"].(map[string]any)
	verification, _ := tls["verification"].(map[string]any)
	for _, name := range kind.ExternalSources {
		source, ok := verification[name].(map[string]any)
		if !ok {
			continue
		}
		if ref, ok := source["secretRef"].(map[string]any); ok {
			verification[name] = map[string]any{"secret": ref["name"]}
		} else if inline, ok := source["insecureInline"].(map[string]any); ok {
			verification[name] = map[string]any{"inlineString": inline["value"]}
		}
	}
}
