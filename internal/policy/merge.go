package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"weft/kind"
)

// Plan says how confs of one Go type merge, with the rules of a JSON merge patch (RFC 7396): objects merge field by
// field, everything else replaces. A field is absent where its pointer, list or mapping is nil, or its string is empty,
// so an empty list is a value.
//
// The struct tag `merge` states exceptions for a list:
//
//	merge:"append"   the items of a later conf follow those of an earlier one
//	merge:"prepend"  the items of a later conf precede those of an earlier one
//	merge:"key=NAME" items with the same field NAME are one item; those of a later conf come first
//
// Merging reads no tags and no names of fields: the plan has them.
type Plan struct {
	// Combination is the rule about fields of several confs; nil: every merged conf of valid ones is valid.
	Combination *kind.Combination[any]

	conf   reflect.Type
	object *object
}

// NewPlan returns the plan for confs of the type of conf, a pointer to a struct. It fails for an unknown tag and for a
// field that cannot be absent.
func NewPlan(conf any) (*Plan, error) {
	t := reflect.TypeOf(conf)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("policy: a conf is a pointer to a struct, not %v", t)
	}
	o, err := planner{}.object(t.Elem())
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return &Plan{conf: t.Elem(), object: o}, nil
}

// Merged is an effective conf.
type Merged struct {
	Conf    any      // of the type of the parts' confs, with which it shares memory
	Origins *Origins // of its fields
	Parts   []Origin // the merged parts, in ascending order
	// Rejected are the parts that are not merged, because the conf would be invalid with them.
	Rejected []Rejected
}

func (p *Plan) merge(parts []Part) Merged {
	m := Merged{Parts: make([]Origin, len(parts))}
	sources := make([]source, len(parts))
	for i := range parts {
		m.Parts[i] = parts[i].Origin()
		sources[i] = source{reflect.ValueOf(parts[i].Conf).Elem(), &m.Parts[i]}
	}
	conf := reflect.New(p.conf)
	m.Origins = p.object.merge(conf.Elem(), sources)
	m.Conf = conf.Interface()
	return m
}

// source is the value of a field in one conf.
type source struct {
	value  reflect.Value
	origin *Origin
}

// merger merges the values of a field that are present in at least one conf, in ascending order.
type merger interface {
	merge(into reflect.Value, sources []source) *Origins
}

// replacement is the merger of scalars, and of lists without a tag.
type replacement struct{}

func (replacement) merge(into reflect.Value, sources []source) *Origins {
	last := sources[len(sources)-1]
	into.Set(last.value)
	return &Origins{From: last.origin}
}

// object is the merger of structs.
type object struct {
	fields []field
}

type field struct {
	name   string // in JSON
	index  []int
	absent func(reflect.Value) bool
	merger merger
}

func (o *object) merge(into reflect.Value, sources []source) *Origins {
	origins := &Origins{}
	present := make([]source, 0, len(sources))
	for i := range o.fields {
		f := &o.fields[i]
		present = present[:0]
		for _, s := range sources {
			if v := s.value.FieldByIndex(f.index); !f.absent(v) {
				present = append(present, source{v, s.origin})
			}
		}
		if len(present) > 0 {
			origins.Fields = append(origins.Fields, Field{f.name, f.merger.merge(into.FieldByIndex(f.index), present)})
		}
	}
	return origins
}

// pointer is the merger of pointers to objects.
type pointer struct {
	to merger
}

func (p pointer) merge(into reflect.Value, sources []source) *Origins {
	into.Set(reflect.New(into.Type().Elem()))
	targets := make([]source, len(sources))
	for i, s := range sources {
		targets[i] = source{s.value.Elem(), s.origin}
	}
	return p.to.merge(into.Elem(), targets)
}

// mapping is the merger of mappings, which are objects in JSON.
type mapping struct {
	values merger
}

func (m mapping) merge(into reflect.Value, sources []source) *Origins {
	entries := map[string][]source{}
	for _, s := range sources {
		for entry := s.value.MapRange(); entry.Next(); {
			name := entry.Key().String()
			entries[name] = append(entries[name], source{entry.Value(), s.origin})
		}
	}
	into.Set(reflect.MakeMapWithSize(into.Type(), len(entries)))
	origins := &Origins{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		value := reflect.New(into.Type().Elem()).Elem()
		origins.Fields = append(origins.Fields, Field{name, m.values.merge(value, entries[name])})
		into.SetMapIndex(reflect.ValueOf(name).Convert(into.Type().Key()), value)
	}
	return origins
}

// joined is the merger of lists with the tag append or prepend.
type joined struct {
	laterFirst bool
}

func (j joined) merge(into reflect.Value, sources []source) *Origins {
	if j.laterFirst {
		sources = slices.Clone(sources)
		slices.Reverse(sources)
	}
	origins, total := &Origins{}, 0
	for _, s := range sources {
		total += s.value.Len()
	}
	list := reflect.MakeSlice(into.Type(), 0, total)
	for _, s := range sources {
		list = reflect.AppendSlice(list, s.value)
		for range s.value.Len() {
			origins.Items = append(origins.Items, &Origins{From: s.origin})
		}
	}
	into.Set(list)
	return origins
}

// keyed is the merger of lists whose items merge by the value of a field.
type keyed struct {
	key  func(item reflect.Value) string
	item merger
}

func (k keyed) merge(into reflect.Value, sources []source) *Origins {
	items := map[string][]source{} // descending
	var order []string
	for _, s := range slices.Backward(sources) {
		for i := range s.value.Len() {
			item := s.value.Index(i)
			key := k.key(item)
			had := items[key]
			if had == nil {
				order = append(order, key)
			} else if had[len(had)-1].origin == s.origin {
				continue // the first one of a conf counts
			}
			items[key] = append(had, source{item, s.origin})
		}
	}
	origins := &Origins{}
	into.Set(reflect.MakeSlice(into.Type(), len(order), len(order)))
	for i, key := range order {
		slices.Reverse(items[key])
		origins.Items = append(origins.Items, k.item.merge(into.Index(i), items[key]))
	}
	return origins
}
