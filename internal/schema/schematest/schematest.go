// Package schematest validates documents of tests against the schemas of the kinds, with a JSON Schema validator.
package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"weft/internal/schema"
	"weft/kind"
	"weft/resource"
)

// Check returns an error if a document in YAML or JSON is invalid by its kind's schema.
func Check(d resource.Descriptor, document []byte) error {
	validator, err := compiled(d.Describe().Name)
	if err != nil {
		return err
	}
	return Validate(validator, document)
}

// Validate returns an error if a document in YAML or JSON is invalid by a schema.
func Validate(s *jsonschema.Schema, document []byte) error {
	raw, err := yaml.YAMLToJSON(resource.AsYAML(document))
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

var validators sync.Map // name of a kind -> func() (*jsonschema.Schema, error)

func compiled(name string) (*jsonschema.Schema, error) {
	compile := sync.OnceValues(func() (*jsonschema.Schema, error) {
		return Compile(schema.ForKind(kind.ByName(name)), "")
	})
	once, _ := validators.LoadOrStore(name, compile)
	return once.(func() (*jsonschema.Schema, error))()
}

// Compile returns the validator of the schema at a place (a JSON pointer) of a value that marshals to a document. The
// validator asserts formats, which some validators treat as annotations.
func Compile(document any, place string) (*jsonschema.Schema, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.DefaultDraft(jsonschema.Draft2020)
	const at = "test:///schema"
	delete(value.(map[string]any), "$id") // a path, which is completed where it is served
	if err := c.AddResource(at, value); err != nil {
		return nil, fmt.Errorf("%s\n%w", raw, err)
	}
	return c.Compile(at + "#" + place)
}
