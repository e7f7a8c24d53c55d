package inject

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	From  string `json:"from,omitempty"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch is a JSON patch of one Pod.
type patch struct {
	labels, annotations       map[string]string // of the Pod as it is
	newLabels, newAnnotations map[string]string
	operations                []operation
}

func (p *patch) add(path string, value any) {
	p.operations = append(p.operations, operation{Op: "add", Path: path, Value: value})
}

func (p *patch) remove(path string) {
	p.operations = append(p.operations, operation{Op: "remove", Path: path})
}

func (p *patch) move(from, to string) {
	p.operations = append(p.operations, operation{Op: "move", From: from, Path: to})
}

func (p *patch) setLabel(key, value string) { set(&p.newLabels, p.labels, key, value) }

func (p *patch) setAnnotation(key, value string) { set(&p.newAnnotations, p.annotations, key, value) }

func set(into *map[string]string, present map[string]string, key, value string) {
	if present[key] == value {
		return
	}
	if *into == nil {
		*into = map[string]string{}
	}
	(*into)[key] = value
}

// writeMetadata adds the labels and annotations that were set.
func (p *patch) writeMetadata() {
	p.writeMap("/metadata/labels", p.labels, p.newLabels)
	p.writeMap("/metadata/annotations", p.annotations, p.newAnnotations)
}

func (p *patch) writeMap(path string, present, added map[string]string) {
	switch {
	case len(added) == 0:
	case present == nil:
		p.add(path, added)
	default:
		for _, key := range sortedKeys(added) {
			p.add(path+"/"+escaped(key), added[key])
		}
	}
}

// escaped returns a part of a JSON pointer (RFC 6901).
func escaped(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// insert adds values to a list, at a place of it. An absent list is created.
func insert[T any](p *patch, path string, length, at int, values []T) {
	if length == 0 && len(values) > 0 {
		p.add(path, values)
		return
	}
	for n, v := range values {
		p.add(path+"/"+itoa(at+n), v)
	}
}

// encode returns the patch, or nil for none.
func (p *patch) encode() ([]byte, error) {
	if len(p.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(p.operations)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
