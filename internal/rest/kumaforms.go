package rest

import (
	"encoding/json"
	"net/http"

	"weft/kind"
	"weft/resource"
)

// formFor returns a resource's Universal form in the fields that the client of a request knows. kumactl 2 rejects what
// it reads where a policy has rules beside `to`, and reads sources of MeshExternalServices in an older form only. It
// prints the Kubernetes form as it is.
func formFor(r *http.Request, o resource.Any, form resource.Form, body json.RawMessage) (json.RawMessage, error) {
	by, ok := kumactlOf(r)
	if major, _, known := releaseOf(by.release); !ok || !known || major != 2 || form != resource.Universal {
		return body, nil
	}
	var rewrite func(spec map[string]any)
	switch o.Key().Kind {
	case kind.MeshTimeouts.Name, kind.MeshCircuitBreakers.Name:
		rewrite = rulesAsFrom
	case kind.MeshExternalServices.Name:
		rewrite = olderSources
	default:
		return body, nil
	}
	var document map[string]any
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	if spec, ok := document["spec"].(map[string]any); ok {
		rewrite(spec)
	}
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
