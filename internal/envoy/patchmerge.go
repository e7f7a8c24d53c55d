package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"weft/kind"
)

// thresholds are the thresholds of circuit breakers, of which Envoy reads the first of each priority.
const thresholds = "envoy.config.cluster.v3.CircuitBreakers.thresholds"

// merge merges a message into another one of its type. Messages merge field by field, lists append, and everything else
// replaces: scalars that are not zero, and messages of the package google.protobuf, such as durations, as a whole. Two
// packed messages of one type merge.
func merge(into, from protoreflect.Message) {
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.FullName() == thresholds:
			mergeThresholds(into.Mutable(field).List(), value.List())
		case field.IsList():
			list := into.Mutable(field).List()
			for i := range value.List().Len() {
				list.Append(cloned(field, value.List().Get(i)))
			}
		case field.IsMap():
			mergeMap(into.Mutable(field).Map(), field, value.Map())
		case field.Message() == nil || !into.Has(field):
			into.Set(field, cloned(field, value))
		default:
			into.Set(field, protoreflect.ValueOfMessage(merged(into.Get(field).Message(), value.Message())))
		}
		return true
	})
}

// merged returns the result of a merge of two messages of a field.
func merged(before, after protoreflect.Message) protoreflect.Message {
	old, isAny := before.Interface().(*anypb.Any)
	if !isAny {
		if strings.HasPrefix(string(before.Descriptor().FullName()), "google.protobuf.") {
			return proto.Clone(after.Interface()).ProtoReflect()
		}
		result := proto.Clone(before.Interface()).ProtoReflect()
		merge(result, after)
		return result
	}
	next := after.Interface().(*anypb.Any)
	packed, err := old.UnmarshalNew()
	more, failure := next.UnmarshalNew()
	if err != nil || failure != nil || old.TypeUrl != next.TypeUrl {
		return proto.Clone(next).ProtoReflect()
	}
	merge(packed.ProtoReflect(), more.ProtoReflect())
	return toAny(packed).ProtoReflect()
}

func mergeMap(into protoreflect.Map, field protoreflect.FieldDescriptor, from protoreflect.Map) {
	from.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if field.MapValue().Message() != nil && into.Has(key) {
			value = protoreflect.ValueOfMessage(merged(into.Get(key).Message(), value.Message()))
		}
		into.Set(key, cloned(field.MapValue(), value))
		return true
	})
}

// mergeThresholds merges each threshold with the one of its priority.
func mergeThresholds(into, from protoreflect.List) {
	for i := range from.Len() {
		next := from.Get(i).Message().Interface().(*clusterv3.CircuitBreakers_Thresholds)
		found := false
		for j := range into.Len() {
			had := into.Get(j).Message().Interface().(*clusterv3.CircuitBreakers_Thresholds)
			if found = had.Priority == next.Priority; found {
				merge(had.ProtoReflect(), next.ProtoReflect())
				break
			}
		}
		if !found {
			into.Append(protoreflect.ValueOfMessage(proto.Clone(next).ProtoReflect()))
		}
	}
}

// cloned returns a value that shares no memory with the modification.
func cloned(field protoreflect.FieldDescriptor, value protoreflect.Value) protoreflect.Value {
	if field.Message() == nil || field.IsMap() {
		return value
	}
	return protoreflect.ValueOfMessage(proto.Clone(value.Message().Interface()).ProtoReflect())
}

// maxPatched bounds the JSON form of a resource after a JSON patch in bytes: copies can double it with each operation.
const maxPatched = 16 << 20

// patchJSON applies the operations of a JSON patch to the JSON form of a message.
func patchJSON(message proto.Message, operations []kind.JSONPatch) error {
	document, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	for i := range operations {
		text, err := json.Marshal(operations[i : i+1])
		if err != nil {
			return err
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err == nil {
			options := jsonpatch.NewApplyOptions()
			options.EnsurePathExistsOnAdd = true
			options.AccumulatedCopySizeLimit = maxPatched
			document, err = patch.ApplyWithOptions(document, options)
		}
		switch {
		case err != nil:
			return fmt.Errorf("jsonPatches[%d]: %w", i, err)
		case len(document) > maxPatched:
			return fmt.Errorf("jsonPatches[%d]: the result has more than %d bytes", i, maxPatched)
		}
	}
	proto.Reset(message)
	if err := protojson.Unmarshal(document, message); err != nil {
		return fmt.Errorf("after jsonPatches: %w", plainError(err))
	}
	return nil
}

// parsedValue returns the value of a modification; nil where it has none. field is the field of a problem.
func parsedValue(m *kind.OneModification) (value proto.Message, field string, err error) {
	if m.Change.Value == "" {
		return nil, "", nil
	}
	document, err := yaml.YAMLToJSON([]byte(m.Change.Value))
	if err != nil {
		return nil, "value", err
	}
	value = emptyValue(m.Object)
	if err := protojson.Unmarshal(document, value); err != nil {
		return nil, "value", plainError(err)
	}
	added := m.Operation != kind.PatchChange
	switch name := nameOf(value); {
	case added && name == "":
		return nil, "value", errors.New("has no name, which an added resource needs")
	case m.Operation == kind.PatchAdd && m.Object != "virtualHost" && reserved(name):
		return nil, "value", fmt.Errorf("has the name %q; names that begin with kri_, self_, system_, vip_ and weft_ "+
			"are of the control plane", name)
	case !added && m.Object != "networkFilter" && m.Object != "httpFilter" && name != "" && m.Match.Name != name:
		return nil, "value", errors.New("has a name, which cannot change; leave it out")
	}
	if added {
		if err := validated(value); err != nil {
			return nil, "value", err
		}
	}
	return value, "", nil
}

func reserved(name string) bool {
	for _, prefix := range []string{"kri_", "self_", "system_", vipPrefix, "weft_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// plainError returns an error of protojson without the marks of its package.
func plainError(err error) error {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return errors.New(strings.TrimPrefix(text, "proto: "))
}
