package schema

import (
	"fmt"
	"maps"
	"slices"

	"weft/kind"
	"weft/resource"
)

// Document is an OpenAPI description (version 3.1), with the fields that the kinds need.
type Document struct {
	OpenAPI    string          `json:"openapi"`
	Info       Information     `json:"info"`
	Dialect    string          `json:"jsonSchemaDialect"`
	Security   []Security      `json:"security"`
	Tags       []Tag           `json:"tags"`
	Paths      map[string]Path `json:"paths"`
	Components Components      `json:"components"`
}

// Information is the title, the version and the description of an API.
type Information struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

// Security has the names of security schemes that an operation requires together. An empty Security stands for an
// unauthenticated client.
type Security map[string][]string

// Tag is a group of operations: those of one kind.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Path has the operations of one path, by their method in lower case.
type Path map[string]*Operation

// Operation is one method of a path.
type Operation struct {
	ID          string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Tags        []string            `json:"tags"`
	Parameters  []Reference         `json:"parameters,omitempty"`
	RequestBody *Content            `json:"requestBody,omitempty"`
	Responses   map[string]Response `json:"responses"`
}

// Reference is a reference to another part of the document.
type Reference struct {
	Ref string `json:"$ref"`
}

// Content is the body of a request, by its media type.
type Content struct {
	Required bool             `json:"required,omitempty"`
	Content  map[string]Media `json:"content"`
}

// Media is a body of one media type.
type Media struct {
	Schema *Schema `json:"schema"`
}

// Response is a response, or a reference to one.
type Response struct {
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Content     map[string]Media `json:"content,omitempty"`
}

// Components are the parts of a document that references refer to.
type Components struct {
	Schemas         map[string]*Schema   `json:"schemas"`
	Parameters      map[string]Parameter `json:"parameters"`
	Responses       map[string]Response  `json:"responses"`
	SecuritySchemes map[string]Scheme    `json:"securitySchemes"`
}

// Parameter is a part of a request's path, query or header.
type Parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required,omitempty"`
	Description string  `json:"description"`
	Style       string  `json:"style,omitempty"`
	Schema      *Schema `json:"schema"`
}

// Scheme is a security scheme: a method of authentication.
type Scheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme,omitempty"`
	Description string `json:"description"`
}

const components = "#/components/"

// OpenAPI returns the description of the paths of all kinds, for a release of the given version.
func OpenAPI(version string) *Document {
	b := &builder{prefix: components + "schemas/", defs: map[string]*Schema{}}
	doc := &Document{
		OpenAPI: "3.1.0", Dialect: Draft,
		Info: Information{"weft", version,
			"Resources of a mesh. A body is in the Universal or the Kubernetes form, in JSON or YAML."},
		Security: []Security{{"token": {}}, {"certificate": {}}, {}},
		Paths:    map[string]Path{},
	}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden {
			continue
		}
		doc.Tags = append(doc.Tags, Tag{info.Name, Description(d)})
		b.defs[info.Name] = b.resource(d, b.status(d))
		for _, segment := range info.Segments() {
			maps.Copy(doc.Paths, pathsOf(info, segment))
		}
	}
	maps.Copy(b.defs, responseBodies())
	doc.Components = Components{b.defs, parameters(), responses(), securitySchemes()}
	return doc
}

// status returns the schema of a kind's status. For a kind without a status it accepts any value.
func (b *builder) status(d resource.Descriptor) *Schema {
	s := &Schema{ReadOnly: true, Description: "written by the control plane"}
	if status := kind.StatusKind(d.Describe().Name); status != nil {
		s.Ref = b.reference(specType(status)).Ref
	}
	return s
}

// pathsOf returns the paths of a kind under a segment, which is its plural or an alias.
func pathsOf(info *resource.Info, segment string) map[string]Path {
	id := info.Name
	if segment != info.Plural {
		id += "At_" + segment // an operation has one name
	}
	all := Path{"get": listOperation(info, "list"+id)}
	if info.Scope == resource.Global {
		return map[string]Path{"/" + segment: all, "/" + segment + "/{name}": itemPath(info, id, "name")}
	}
	collection := "/meshes/{mesh}/" + segment
	return map[string]Path{
		"/" + segment:          {"get": listOperation(info, "listAll"+id)},
		collection:             {"get": listOperation(info, "list"+id, "mesh")},
		collection + "/{name}": itemPath(info, id, "mesh", "name"),
	}
}

func listOperation(info *resource.Info, id string, where ...string) *Operation {
	page := &Schema{Type: "object", Required: []string{"total", "items", "next"}, Properties: map[string]*Schema{
		"total": {Type: "integer", Description: "the number of all matches"},
		"items": {Type: "array", Items: &Schema{Ref: components + "schemas/" + info.Name}},
		"next": {AnyOf: []*Schema{{Type: "string"}, {Type: "null"}},
			Description: "the URL of the next page; null on the last one"},
	}}
	return operation(info, id, fmt.Sprintf("List %s", info.Plural),
		slices.Concat(where, []string{"size", "offset", "after", "sort", "nameFilter", "filter", "format"}),
		map[string]Response{"200": responseOf("a page of resources", page)}, "400", "401", "403")
}

func itemPath(info *resource.Info, id string, where ...string) Path {
	ref := &Schema{Ref: components + "schemas/" + info.Name}
	path := Path{"get": operation(info, "get"+id, "Read a "+info.Name, slices.Concat(where, []string{"format"}),
		map[string]Response{"200": responseOf("the "+info.Name+"; ETag is its version", ref)}, "400", "401", "403",
		"404")}
	if info.ReadOnly {
		return path
	}
	write := slices.Concat(where, []string{"ifMatch", "dryRun"})
	written := responseOf("the result of the write", &Schema{Ref: components + "schemas/PutResponse"})
	action := fmt.Sprintf(" (action %s)", info.WrittenBy)
	put := operation(info, "put"+id, "Create or replace a "+info.Name+action, write,
		map[string]Response{"200": written, "201": written}, "400", "401", "403", "404", "409", "412", "413", "503")
	put.RequestBody = &Content{Required: true, Content: map[string]Media{"application/json": {ref},
		"application/yaml": {ref}}}
	path["put"] = put
	path["delete"] = operation(info, "delete"+id, "Delete a "+info.Name+action, write,
		map[string]Response{"200": {Description: "deleted"}}, "400", "401", "403", "404", "409", "412", "503")
	return path
}

func operation(info *resource.Info, id, summary string, parameters []string, responses map[string]Response,
	problems ...string) *Operation {
	o := &Operation{ID: id, Summary: summary, Tags: []string{info.Name}, Responses: responses}
	for _, name := range parameters {
		o.Parameters = append(o.Parameters, Reference{components + "parameters/" + name})
	}
	for _, status := range problems {
		o.Responses[status] = Response{Ref: components + "responses/problem"}
	}
	return o
}

func responseOf(description string, s *Schema) Response {
	return Response{Description: description, Content: map[string]Media{"application/json": {s}}}
}
