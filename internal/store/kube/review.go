package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"weft/internal/store"
	"weft/resource"
)

// Object is an object that a user writes, before the API server stores it.
type Object struct {
	at      place
	object  object
	sent    []byte
	ignored []string
}

// Sent reads an object of a kind that a user sends. Labels and annotations that only the store writes are taken from
// the stored object; nil where nothing is stored. An object without an owner gets the usual one, its Mesh, and is
// deleted with it, as a row that this store creates.
func (s *Store) Sent(ctx context.Context, kind string, raw []byte, stored *Object) (*Object, error) {
	o, err := s.ReadObject(kind, raw)
	if err != nil {
		return nil, err
	}
	var before metadata
	if stored != nil {
		before = stored.object.Metadata
	}
	if before, err = s.owned(ctx, o, before); err != nil {
		return nil, err
	}
	o.object.Metadata.Labels = o.restored("labels", o.object.Metadata.Labels, before.Labels, storeLabels)
	o.object.Metadata.Annotations = o.restored("annotations", o.object.Metadata.Annotations, before.Annotations,
		[]string{ownerAnnotation, nameAnnotation, recordAnnotation})
	return o, nil
}

// owned returns the metadata of the stored object of a sent one, with an owner where that has none and its Mesh exists.
func (s *Store) owned(ctx context.Context, sent *Object, m metadata) (metadata, error) {
	of := s.kinds[sent.at.of.Owner]
	if of == nil || of.Meshed || m.Annotations[ownerAnnotation] != "" || (&object{Metadata: m}).ownedByNative() {
		return m, nil
	}
	key, err := sent.at.keyOf(&sent.object)
	if err != nil {
		return m, nil // Row returns the reason
	}
	by := owner{Key: resource.Key{Kind: of.Name, Name: key.Mesh}}
	if by.UID, err = s.uid(ctx, by.Key); err != nil || by.UID == "" {
		return m, err
	}
	m.Labels, m.Annotations = copyOf(m.Labels), copyOf(m.Annotations)
	return m, m.setOwner(by)
}

// copyOf returns a map that can be changed.
func copyOf(m map[string]string) map[string]string {
	copied := map[string]string{}
	maps.Copy(copied, m)
	return copied
}

// ReadObject reads an object of a kind as the API server has it.
func (s *Store) ReadObject(kind string, raw []byte) (*Object, error) {
	o := &Object{at: s.rowsOf(kind), sent: raw}
	if err := json.Unmarshal(raw, &o.object); err != nil {
		return nil, &resource.Error{Code: resource.Invalid, Detail: "the object can't be read", Cause: err}
	}
	return o, nil
}

// restored returns sent labels or annotations with the stored values of some names.
func (o *Object) restored(what string, sent, stored map[string]string, names []string) map[string]string {
	restored := map[string]string{}
	for name, value := range sent {
		restored[name] = value
	}
	for _, name := range names {
		value, had := stored[name]
		if got, written := sent[name]; written && got != value {
			o.ignored = append(o.ignored, fmt.Sprintf("metadata.%s[%s]: %q is ignored: the control plane sets it", what,
				name, got))
		}
		if delete(restored, name); had {
			restored[name] = value
		}
	}
	return restored
}

// IgnoredFields are sentences about labels and annotations that the user may not write.
func (o *Object) IgnoredFields() []string { return o.ignored }

// Row returns the row that the object would have, without its status. It returns Invalid for an object that contradicts
// itself.
func (o *Object) Row() (store.Row, error) {
	m := &o.object.Metadata
	if m.Name == "" {
		return store.Row{}, &resource.Error{Code: resource.Invalid, Detail: "a resource needs a name",
			Problems: resource.Problems{{Field: "metadata.name", Reason: "is required; metadata.generateName is not " +
				"enough"}}}
	}
	if label := m.Labels[resource.MeshLabel]; o.at.of.MeshField && o.object.Mesh != "" && label != "" &&
		label != o.object.Mesh {
		return store.Row{}, &resource.Error{Code: resource.Invalid, Detail: "the object has two meshes",
			Problems: resource.Problems{{Field: "mesh", Reason: fmt.Sprintf("is %q, and the label %s is %q; leave one "+
				"of them out", o.object.Mesh, resource.MeshLabel, label)}}}
	}
	row, _, err := o.at.row(&o.object)
	return row, err
}

// Patch returns the JSON patch (RFC 6902) that gives the object the content of a row; nil where it has this content.
func (o *Object) Patch(row store.Row) ([]byte, error) {
	next := o.object
	if err := o.at.fill(&next, row); err != nil {
		return nil, err
	}
	before, after := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := parts(o.sent, before); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(next)
	if err == nil {
		err = parts(raw, after)
	}
	if err != nil {
		return nil, err
	}
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	var patch []operation
	for _, path := range patched {
		if value, ok := after[path]; ok && !equalJSON(before[path], value) {
			patch = append(patch, operation{"add", path, value})
		}
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

// patched are the parts of an object that have its row.
var patched = []string{"/metadata/labels", "/metadata/annotations", "/mesh", "/spec", "/data"}

// parts reads the parts of an object that have its row. Labels and annotations are never absent.
func parts(raw []byte, into map[string]json.RawMessage) error {
	var top struct {
		Metadata         struct{ Labels, Annotations json.RawMessage }
		Mesh, Spec, Data json.RawMessage
	}
	if err := json.Unmarshal(raw, &top); err != nil {
		return err
	}
	for i, value := range []json.RawMessage{top.Metadata.Labels, top.Metadata.Annotations, top.Mesh, top.Spec,
		top.Data} {
		switch {
		case len(value) > 0:
			into[patched[i]] = value
		case i < 2:
			into[patched[i]] = json.RawMessage("{}")
		}
	}
	return nil
}

func equalJSON(a, b json.RawMessage) bool {
	var first, second any
	return json.Unmarshal(a, &first) == nil && json.Unmarshal(b, &second) == nil && reflect.DeepEqual(first, second)
}
