package audit

import (
	"encoding/json"

	"weft/kind"
	"weft/resource"
)

// mask replaces a secret value.
const mask = "***"

// masked returns a resource without secret values.
func (l *Log) masked(o resource.Any) (*Resource, string, json.RawMessage) {
	if o == nil {
		return nil, "", nil
	}
	key := o.Key()
	name := &Resource{key.Kind, key.Mesh, key.Name}
	body, err := Mask(o)
	if err != nil {
		l.log.Error("a resource can't be shown in the audit log", "resource", key, "error", err)
	}
	return name, o.Envelope().Version, body
}

// Mask returns o as JSON in its universal form, with the values of secrets replaced by a constant.
func Mask(o resource.Any) (json.RawMessage, error) {
	d := kind.ByName(o.Key().Kind)
	text, err := resource.MarshalJSON(o, nil, d, resource.Universal)
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	resource.MaskSecrets(d, document, mask)
	for field := range document {
		if d.Describe().AdminOnly && !envelope[field] {
			document[field] = mask
		}
	}
	return json.Marshal(document)
}

// envelope are the fields of a resource that are not its content.
var envelope = map[string]bool{"type": true, "mesh": true, "name": true, "labels": true, "creationTime": true,
	"modificationTime": true}
