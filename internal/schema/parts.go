package schema

import "weft/kind"

// parameters are those of all operations, by the name that references use.
func parameters() map[string]Parameter {
	text := &Schema{Type: "string"}
	return map[string]Parameter{
		"mesh":       {Name: "mesh", In: "path", Required: true, Description: "a mesh", Schema: &Schema{Type: "string", Pattern: kind.Patterns["mesh"].String()}},
		"name":       {Name: "name", In: "path", Required: true, Description: "the resource's name", Schema: text},
		"size":       {Name: "size", In: "query", Description: "how many on a page", Schema: &Schema{Type: "integer", Minimum: number(1), Maximum: number(1000), Default: 100}},
		"offset":     {Name: "offset", In: "query", Description: "how many to leave out before", Schema: &Schema{Type: "integer", Minimum: number(0), Default: 0}},
		"nameFilter": {Name: "name", In: "query", Description: "a part of the name", Schema: text},
		"filter": {
			Name: "filter", In: "query", Style: "deepObject",
			Description: "filter[labels.KEY]=VALUE: a label that must be there; all of several must match",
			Schema:      &Schema{Type: "object", Additional: text},
		},
		"format":  {Name: "format", In: "query", Description: "the form of the answer", Schema: &Schema{Type: "string", Enum: []string{"universal", "k8s"}, Default: "universal"}},
		"ifMatch": {Name: "If-Match", In: "header", Description: "the ETag of a read: the change is made only if nobody wrote since", Schema: text},
		"dryRun":  {Name: "dryRun", In: "query", Description: "answer what would come of it, and write nothing", Schema: &Schema{Type: "boolean", Default: false}},
	}
}

// answers are the bodies of answers that are no resources.
func answers() map[string]*Schema {
	text := &Schema{Type: "string"}
	return map[string]*Schema{
		"PutAnswer": {Type: "object", Properties: map[string]*Schema{
			"created":  {Type: "boolean", Description: "in a dry run: whether it would be new"},
			"changed":  {Type: "boolean", Description: "false where the same was stored before"},
			"warnings": {Type: "array", Items: text, Description: "what is right and yet may surprise"},
			"resource": {Type: "object", Description: "in a dry run: what would be stored"},
		}, Required: []string{"changed", "warnings"}},
		"Problem": {
			Type: "object", Description: "an error (RFC 9457)", Required: []string{"type", "status", "title"},
			Properties: map[string]*Schema{
				"type":   text,
				"status": {Type: "integer", Description: "that of the answer"},
				"title":  text,
				"detail": {Type: "string", Description: "what is wrong, and what to do"},
				"invalid_parameters": {Type: "array", Items: &Schema{
					Type: "object", Required: []string{"field", "reason"},
					Properties: map[string]*Schema{"field": text, "reason": text},
				}},
			},
		},
	}
}

func responses() map[string]Response {
	return map[string]Response{"problem": {
		Description: "refused; the body says why",
		Content:     map[string]Media{"application/problem+json": {&Schema{Ref: components + "schemas/Problem"}}},
	}}
}

func securitySchemes() map[string]Scheme {
	return map[string]Scheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "a user token"},
		"certificate": {Type: "mutualTLS", Description: "a client certificate, where the API is served over TLS"},
	}
}
