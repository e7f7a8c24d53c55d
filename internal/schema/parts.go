package schema

import "weft/kind"

// parameters returns the parameters of all operations, by the name that references use.
func parameters() map[string]Parameter {
	text := &Schema{Type: "string"}
	return map[string]Parameter{
		"mesh": {Name: "mesh", In: "path", Required: true, Description: "a mesh",
			Schema: &Schema{Type: "string", Pattern: kind.Patterns["mesh"].String()}},
		"name": {Name: "name", In: "path", Required: true, Description: "the resource's name", Schema: text},
		"size": {Name: "size", In: "query",
			Description: "the size of a page; without it the response has the whole list",
			Schema:      &Schema{Type: "integer", Minimum: number(1), Maximum: number(1000)}},
		"offset": {Name: "offset", In: "query", Description: "the number of skipped items",
			Schema: &Schema{Type: "integer", Minimum: number(0), Default: 0}},
		"sort": {Name: "sort", In: "query",
			Description: "the order: name, mesh, zone, creationTime, modificationTime or, where items have one, " +
				"status; with - before it the opposite order",
			Schema: text},
		"after": {Name: "after", In: "query",
			Description: "the cursor of a page, which the URL of the next page has", Schema: text},
		"nameFilter": {Name: "name", In: "query", Description: "a substring of the name", Schema: text},
		"filter": {
			Name: "filter", In: "query", Style: "deepObject",
			Description: "filter[labels.KEY]=VALUE: a required label; several must all match. filter[zone]=ZONE; " +
				"for proxies filter[status], filter[version.envoy], filter[version.agent], filter[address], " +
				"filter[certificate]=none and filter[certificate.expiresBefore]=TIME; for Dataplanes filter[service]",
			Schema: &Schema{Type: "object", Additional: text},
		},
		"format": {Name: "format", In: "query", Description: "the form of the response",
			Schema: &Schema{Type: "string", Enum: []string{"universal", "k8s"}, Default: "universal"}},
		"ifMatch": {Name: "If-Match", In: "header",
			Description: "the ETag of a read: the write takes effect only if the resource has not changed since",
			Schema:      text},
		"dryRun": {Name: "dryRun", In: "query", Description: "perform all checks, return the result, and write nothing",
			Schema: &Schema{Type: "boolean", Default: false}},
	}
}

// responseBodies returns the schemas of response bodies that are not resources.
func responseBodies() map[string]*Schema {
	text := &Schema{Type: "string"}
	return map[string]*Schema{
		"PutResponse": {Type: "object", Properties: map[string]*Schema{
			"created":  {Type: "boolean", Description: "in a dry run: whether the resource would be created"},
			"changed":  {Type: "boolean", Description: "false where the stored resource is equal"},
			"warnings": {Type: "array", Items: text, Description: "warnings about a valid resource"},
			"resource": {Type: "object", Description: "in a dry run: the resource as it would be stored"},
		}, Required: []string{"changed", "warnings"}},
		"Problem": {
			Type: "object", Description: "an error (RFC 9457)", Required: []string{"type", "status", "title"},
			Properties: map[string]*Schema{
				"type":   text,
				"status": {Type: "integer", Description: "the status of the response"},
				"title":  text,
				"detail": {Type: "string", Description: "the problem, and the remedy"},
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
		Description: "rejected; the body has the reason",
		Content:     map[string]Media{"application/problem+json": {&Schema{Ref: components + "schemas/Problem"}}},
	}}
}

func securitySchemes() map[string]Scheme {
	return map[string]Scheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "a user token"},
		"certificate": {Type: "mutualTLS", Description: "a client certificate, on the port with TLS"},
	}
}
