package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ruleCheck adds the problems of a value to those of a walk.
type ruleCheck func(w *ruleWalk, v reflect.Value)

// ruleWalk compares a spec with the rules of its fields.
type ruleWalk struct {
	steps    []ruleStep
	problems Problems
}

// ruleStep leads from a value to one in it: a field by its name, an item of a list, or an entry of a map by its key.
type ruleStep struct {
	field, key string
	item       int
}

func (s *ruleStep) String() string {
	switch {
	case s.field != "":
		return "." + s.field
	case s.key != "":
		return "[" + s.key + "]"
	}
	return "[" + strconv.Itoa(s.item) + "]"
}

// add adds a problem of the value at which the walk is.
func (w *ruleWalk) add(format string, args ...any) {
	var at strings.Builder
	for i := range w.steps {
		at.WriteString(w.steps[i].String())
	}
	w.problems.Add(strings.TrimPrefix(at.String(), "."), format, args...)
}

// within checks a value that is one step away.
func (w *ruleWalk) within(step ruleStep, check ruleCheck, v reflect.Value) {
	w.steps = append(w.steps, step)
	check(w, v)
	w.steps = w.steps[:len(w.steps)-1]
}

// ruleProblems returns the problems of a spec by the rules of its fields, in their order. The value is that of a kind
// whose fields are under `spec`, unless it is flat.
func ruleProblems(info *Info, spec reflect.Value) Problems {
	w := &ruleWalk{}
	check := structCheck(spec.Type())
	switch {
	case check == nil:
	case info.Flat:
		check(w, spec)
	default:
		w.within(ruleStep{field: "spec"}, check, spec)
	}
	return w.problems
}

// structChecks has the check of each type of structs, so that reflection reads the tags of a type once. No type of a
// resource has itself as a field.
var structChecks sync.Map // ruleCheck by reflect.Type

type ruledField struct {
	index int
	name  string // empty: the fields of an embedded struct
	check ruleCheck
}

// structCheck returns the check of the fields of a struct; nil: none has a rule.
func structCheck(t reflect.Type) ruleCheck {
	if known, ok := structChecks.Load(t); ok {
		return known.(ruleCheck)
	}
	var fields []ruledField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if check := structCheck(f.Type); check != nil {
				fields = append(fields, ruledField{i, "", check})
			}
			continue
		}
		if check := fieldCheck(f); check != nil && f.IsExported() {
			fields = append(fields, ruledField{i, name, check})
		}
	}
	var check ruleCheck
	if len(fields) > 0 {
		check = func(w *ruleWalk, v reflect.Value) {
			for i := range fields {
				if f := &fields[i]; f.name == "" {
					f.check(w, v.Field(f.index))
				} else {
					w.within(ruleStep{field: f.name}, f.check, v.Field(f.index))
				}
			}
		}
	}
	structChecks.Store(t, check)
	return check
}

// fieldCheck returns the check of a field; nil: it has no rule.
func fieldCheck(f reflect.StructField) ruleCheck {
	r := RulesOf(f)
	inner, missing := r.valueCheck(f.Type), r.missing(f.Type)
	switch {
	case missing == "" && inner == nil:
		return nil
	case isObject(f.Type):
		return inner
	}
	return func(w *ruleWalk, v reflect.Value) {
		switch {
		case !isGiven(v):
			if missing != "" {
				w.add("%s", missing)
			}
		case inner != nil:
			inner(w, v)
		}
	}
}

// isObject reports whether a type is a struct whose fields have rules of their own.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler)
}

// isGiven reports whether a field has a value. An empty list or map is none.
func isGiven(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		return v.Len() > 0
	}
	return !v.IsZero()
}

// missing returns the problem of a field that has no value; empty: it needs none.
func (r *Rules) missing(t reflect.Type) string {
	const text = "is required"
	switch {
	case !r.Required || isObject(t):
		return ""
	case r.Missing != "":
		return text + ": " + r.Missing
	case r.Port && t.Kind() != reflect.Pointer:
		return PortProblem(0)
	case len(r.Enum) > 0:
		return text + ": " + strings.Join(r.Enum, ", ")
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return text + ": at least one item"
	}
	return text
}

// valueCheck returns the check of a value that is there; nil: it has no rule.
func (r *Rules) valueCheck(t reflect.Type) ruleCheck {
	switch {
	case t.Kind() == reflect.Pointer:
		if inner := r.valueCheck(t.Elem()); inner != nil {
			return func(w *ruleWalk, v reflect.Value) { inner(w, v.Elem()) }
		}
		return nil
	case isObject(t):
		return structCheck(t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return r.listCheck(t)
	case t.Kind() == reflect.Map:
		return r.mapCheck(t)
	}
	problem := r.scalarProblem(t)
	if problem == nil {
		return nil
	}
	return func(w *ruleWalk, v reflect.Value) {
		if reason := problem(v); reason != "" {
			w.add("%s", reason)
		}
	}
}

func (r *Rules) listCheck(t reflect.Type) ruleCheck {
	inner, most := r.valueCheck(t.Elem()), r.Bound.Items
	return func(w *ruleWalk, v reflect.Value) {
		n := v.Len()
		if most > 0 && n > most {
			w.add("has %d items, want %d at most", n, most)
			return
		}
		if inner == nil {
			return
		}
		for i := range n {
			w.within(ruleStep{item: i}, inner, v.Index(i))
		}
	}
}

// mapCheck returns the check of a map. The names and values of labels and tags are not those of a form alone; the kinds
// check them.
func (r *Rules) mapCheck(t reflect.Type) ruleCheck {
	b, inner := r.Bound, ruleCheck(nil)
	if !r.Labels && !r.Tags {
		inner = r.valueCheck(t.Elem())
	}
	return func(w *ruleWalk, v reflect.Value) {
		if n := v.Len(); b.Properties > 0 && n > b.Properties {
			w.add("has %d entries, want %d at most", n, b.Properties)
			return
		}
		if inner == nil {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			w.within(ruleStep{key: key.String()}, inner, v.MapIndex(key))
		}
	}
}

// scalarProblem returns a function that returns the problem of a value, or ""; nil: no value is wrong.
func (r *Rules) scalarProblem(t reflect.Type) func(reflect.Value) string {
	hasText := reflect.PointerTo(t).Implements(unmarshaler)
	switch t.Kind() {
	case reflect.String:
		if !hasText {
			return r.textProblem()
		}
	case reflect.Slice:
		if most := r.Bound.Length; most > 0 {
			return func(v reflect.Value) string { return tooLong(v.Len(), most, "bytes") }
		}
	case reflect.Float64:
		return rangeProblem(r, reflect.Value.Float, parseFloat, func(v reflect.Value) string { return fmt.Sprint(v) })
	case reflect.Int64:
		if hasText {
			return rangeProblem(r, durationOf, ParseDuration,
				func(v reflect.Value) string { return durationOf(v).String() })
		}
		return rangeProblem(r, reflect.Value.Int, parseInt, func(v reflect.Value) string { return fmt.Sprint(v) })
	case reflect.Int, reflect.Int32:
		return rangeProblem(r, reflect.Value.Int, parseInt, func(v reflect.Value) string { return fmt.Sprint(v) })
	case reflect.Uint32:
		if r.Port {
			return func(v reflect.Value) string { return PortProblem(uint32(v.Uint())) }
		}
		return rangeProblem(r, func(v reflect.Value) int64 { return int64(v.Uint()) }, parseInt,
			func(v reflect.Value) string { return fmt.Sprint(v) })
	}
	return nil
}

func durationOf(v reflect.Value) time.Duration { return time.Duration(v.Int()) }

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// forms are the forms that the word "pattern=" names. Each returns the problem of a value, or "".
var forms = map[string]func(string) string{
	"name": NameProblem, "mesh": MeshNameProblem, "section": SectionProblem,
	"duration": func(text string) string {
		if _, err := ParseDuration(text); err != nil {
			return err.Error()
		}
		return ""
	},
}

// textProblem is scalarProblem for a string.
func (r *Rules) textProblem() func(reflect.Value) string {
	enum, most := r.Enum, r.Bound.Length
	form := forms[r.Pattern]
	switch {
	case len(enum) > 0:
		return func(v reflect.Value) string {
			if slices.Contains(enum, v.String()) {
				return ""
			}
			return fmt.Sprintf("is %s, want one of %s", QuoteShort(v.String()), strings.Join(enum, ", "))
		}
	case r.IP:
		return func(v reflect.Value) string { return AddressProblem(v.String()) }
	case r.Pattern == "duration" && r.hasRange():
		parsed := func(v reflect.Value) time.Duration {
			d, _ := ParseDuration(v.String())
			return d
		}
		inRange := rangeProblem(r, parsed, ParseDuration, reflect.Value.String)
		return func(v reflect.Value) string {
			if problem := form(v.String()); problem != "" {
				return problem
			}
			return inRange(v)
		}
	case form != nil:
		return func(v reflect.Value) string { return form(v.String()) }
	case most > 0:
		return func(v reflect.Value) string {
			if text := v.String(); len(text) > most {
				return tooLong(utf8.RuneCountInString(text), most, "characters")
			}
			return ""
		}
	}
	return nil
}

func tooLong(n, most int, of string) string {
	if n <= most {
		return ""
	}
	return fmt.Sprintf("has %d %s, want %d at most", n, of, most)
}

// rangeProblem returns a function that compares a value with `min=` and `max=`, which parse reads; nil: there is
// neither.
func rangeProblem[N int64 | float64 | time.Duration](r *Rules, value func(reflect.Value) N,
	parse func(string) (N, error), shown func(reflect.Value) string) func(reflect.Value) string {
	if !r.hasRange() {
		return nil
	}
	low, _ := parse(r.Min) // RulesOf read both
	high, _ := parse(r.Max)
	want := r.wantedRange()
	return func(v reflect.Value) string {
		n := value(v)
		if (r.Min == "" || n >= low) && (r.Max == "" || n <= high) || r.Zero && n == 0 {
			return ""
		}
		reason := "is " + shown(v) + ", " + want
		switch {
		case r.Advice != "":
			reason += "; " + r.Advice
		case n == 0 && !r.Required:
			reason += "; leave it out for the default"
		}
		return reason
	}
}

func (r *Rules) hasRange() bool { return r.Min != "" || r.Max != "" }

// wantedRange returns the range as in messages.
func (r *Rules) wantedRange() string {
	want := "want " + r.Min + " to " + r.Max
	switch {
	case r.Max == "":
		want = "want at least " + r.Min
	case r.Min == "":
		want = "want " + r.Max + " at most"
	}
	if r.Zero {
		want += ", or 0s for no limit"
	}
	return want
}
