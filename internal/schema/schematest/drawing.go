package schematest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"weft/internal/schema"
	"weft/kind"
	"weft/resource"
)

// Drawing draws documents of kinds at random from their schemas, so that a new kind needs no code. Most values are
// valid by the schema; the others are at or beyond its bounds, of another type, or texts that some reader could
// misread.
//
// The schema does not have every rule of a kind. [Drawing.Repair] changes a document by the problems of its validation,
// and [Drawing.Learn] makes the values of valid documents frequent.
type Drawing struct {
	// Names and Labels are those of the resources to which references shall refer.
	Names  []string
	Labels [][2]string
	// Extreme draws most fields, numbers and durations at their bounds, and long lists, whatever valid documents have.
	Extreme bool

	rand   *rand.Rand
	values map[string][]any // of valid documents, by place
	kinds  map[string]*schema.Schema
}

// NewDrawing returns a drawing. Equal seeds and equal calls have equal documents.
func NewDrawing(seed uint64) *Drawing {
	return &Drawing{rand: rand.New(rand.NewPCG(seed, 0)), values: map[string][]any{},
		kinds: map[string]*schema.Schema{}}
}

// maxKnown bounds the values that are known of a place.
const maxKnown = 64

// Learn adds the values of the spec of a valid document.
func (d *Drawing) Learn(document map[string]any) { d.learn("", document["spec"]) }

func (d *Drawing) learn(at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			d.learn(placeOf(at, name), v[name])
		}
		return
	case []any:
		for _, item := range v {
			d.learn(at, item)
		}
		return
	}
	known := d.values[at]
	if len(known) < maxKnown {
		d.values[at] = append(known, value)
	} else {
		known[d.rand.IntN(maxKnown)] = value
	}
}

// placeOf returns the place of a field: its name and that of the field that has it.
func placeOf(parent, name string) string {
	return parent[strings.LastIndex(parent, ".")+1:] + "." + name
}

// Document draws a document of a kind that belongs to a mesh.
func (d *Drawing) Document(k resource.Descriptor, mesh, name string) map[string]any {
	document := map[string]any{"type": k.Describe().Name, "mesh": mesh, "name": name,
		"spec": d.value(d.spec(k), d.root(k), "spec")}
	if d.once(20) {
		document["labels"] = d.labels()
	}
	return document
}

// root returns the schema of a kind.
func (d *Drawing) root(k resource.Descriptor) *schema.Schema {
	name := k.Describe().Name
	if d.kinds[name] == nil {
		d.kinds[name] = schema.ForKind(k)
	}
	return d.kinds[name]
}

func (d *Drawing) spec(k resource.Descriptor) *schema.Schema {
	return d.root(k).Defs[k.Describe().Name+"Spec"]
}

// once reports true once in n times.
func (d *Drawing) once(n int) bool { return d.rand.IntN(n) == 0 }

func pick[T any](d *Drawing, from []T) T { return from[d.rand.IntN(len(from))] }

// resolved returns the schema to which a reference refers.
func resolved(s, root *schema.Schema) *schema.Schema {
	if s.Ref == "" {
		return s
	}
	return root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
}

// value draws a value of a schema at a place.
func (d *Drawing) value(s, root *schema.Schema, at string) any {
	s = resolved(s, root)
	switch known := d.values[at]; {
	case d.once(150):
		return copied(pick(d, oddities))
	case len(known) > 0 && !d.Extreme && !d.once(3):
		return pick(d, known)
	case len(s.AnyOf) > 0 && s.Type == "":
		return d.value(pick(d, s.AnyOf), root, at)
	}
	switch s.Type {
	case "object":
		return d.object(s, root, at)
	case "array":
		return d.list(s, root, at)
	case "boolean":
		return d.once(2)
	case "integer":
		return d.integer(s)
	case "number":
		return pick(d, decimals)
	}
	return d.text(s)
}

// copied returns a value that shares nothing with another one, since [Drawing.Repair] changes values in place.
func copied(value any) any {
	switch v := value.(type) {
	case map[string]any:
		fields := map[string]any{}
		for name, field := range v {
			fields[name] = copied(field)
		}
		return fields
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = copied(v[i])
		}
		return items
	}
	return value
}

func (d *Drawing) object(s, root *schema.Schema, at string) any {
	if values, ok := s.Additional.(*schema.Schema); ok {
		if s.MaxProperties == resource.MaxLabels && !d.once(20) {
			return d.labels()
		}
		entries := map[string]any{}
		for range d.rand.IntN(3) {
			entries[pick(d, texts)] = d.value(values, root, at)
		}
		return entries
	}
	object := map[string]any{}
	names := slices.Sorted(maps.Keys(s.Properties))
	if len(names) == 0 {
		return object
	}
	one := pick(d, names)
	for _, name := range names {
		p := s.Properties[name]
		switch {
		case slices.Contains(s.Required, name):
			if d.once(100) {
				continue
			}
		case s.MaxProperties == 1:
			if name != one {
				continue
			}
		case p.Deprecated && !d.once(8), name == "namespace" && !d.once(50), name != one && d.once(3) == d.Extreme:
			continue
		}
		object[name] = d.value(p, root, placeOf(at, name))
	}
	return object
}

func (d *Drawing) labels() map[string]any {
	labels := map[string]any{}
	for range d.rand.IntN(3) {
		pair := pick(d, d.Labels)
		labels[pair[0]] = pair[1]
	}
	if d.once(20) {
		labels[pick(d, texts)] = pick(d, texts)
	}
	return labels
}

// maxDrawn bounds the items of a drawn list, so that a document stays readable.
const maxDrawn = 300

func (d *Drawing) list(s, root *schema.Schema, at string) any {
	n := 1 + d.rand.IntN(2)
	switch {
	case d.once(12):
		n = 0
	case d.once(12):
		n = 3 + d.rand.IntN(4)
	case (d.once(100) || d.Extreme && d.once(10)) && s.MaxItems > 0 && s.MaxItems < maxDrawn:
		n = s.MaxItems + d.rand.IntN(2)
	}
	items := make([]any, n)
	for i := range items {
		if i > 6 {
			items[i] = copied(items[i-6]) // the number counts, and not the content
			continue
		}
		items[i] = d.value(s.Items, root, at)
	}
	return items
}

func (d *Drawing) integer(s *schema.Schema) any {
	low, high := 0, 1<<32-1
	if s.Minimum != nil {
		low = *s.Minimum
	}
	if s.Maximum != nil {
		high = *s.Maximum
	}
	choices := 8
	if d.Extreme {
		choices = 2
	}
	switch d.rand.IntN(choices) {
	case 0:
		return low
	case 1:
		return high
	case 2:
		if d.once(3) {
			return pick(d, []any{low - 1, high + 1, -1, 1 << 31, 1<<31 - 1, 1 << 32, 1<<32 - 1, 1.5, 1e300})
		}
	}
	return low + d.rand.IntN(min(high-low, 1000)+1)
}

func (d *Drawing) text(s *schema.Schema) any {
	switch {
	case len(s.Enum) > 0 && !d.once(40):
		return pick(d, s.Enum)
	case s.Pattern == kind.Patterns["duration"].String() && d.Extreme:
		return pick(d, []string{"1ms", "10y", "100ms", "1s"})
	case s.Pattern == kind.Patterns["duration"].String() && !d.once(40):
		return pick(d, durations)
	case s.Pattern == kind.DecimalText:
		return strings.Trim(fmt.Sprint(pick(d, decimals)), `"`)
	case s.Pattern != "" && !d.once(20):
		return pick(d, d.Names)
	case s.MaxLength > 0 && d.once(40):
		return strings.Repeat("a", s.MaxLength+d.rand.IntN(2))
	case d.once(60):
		return pick(d, texts) + pick(d, texts)
	}
	return pick(d, texts)
}

// Repair changes a document by a problem of its validation: it adds a missing field, and removes or draws anew a wrong
// one. It returns false where it does not find the field.
func (d *Drawing) Repair(k resource.Descriptor, document map[string]any, problem resource.Problem) bool {
	steps := stepsOf(problem.Field)
	if len(steps) == 0 {
		return false
	}
	parent, schemaOf, at, ok := d.walk(k, document, steps[:len(steps)-1])
	if !ok {
		return false
	}
	last := steps[len(steps)-1]
	switch in := parent.(type) {
	case map[string]any:
		_, present := in[last]
		leave := strings.Contains(problem.Reason, "leave") || strings.Contains(problem.Reason, "no meaning")
		p := propertyOf(schemaOf, last)
		switch {
		case present && (leave || p == nil || d.once(2)):
			delete(in, last)
		case p == nil:
			return false
		default:
			in[last] = d.value(p, d.root(k), placeOf(at, last))
		}
		return true
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i < len(in) && schemaOf.Items != nil {
			in[i] = d.value(schemaOf.Items, d.root(k), at)
			return true
		}
	}
	return false
}

// stepsOf returns the names and indexes of a path such as "spec.to[0].default".
func stepsOf(path string) []string {
	return strings.FieldsFunc(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' })
}

// walk returns the value at a path of a document, with its schema and its place.
func (d *Drawing) walk(k resource.Descriptor, document map[string]any, steps []string) (value any, s *schema.Schema,
	at string, ok bool) {
	root := d.root(k)
	value, s = any(document), &schema.Schema{Properties: map[string]*schema.Schema{"spec": d.spec(k)}}
	for _, step := range steps {
		switch in := value.(type) {
		case map[string]any:
			s, at = propertyOf(s, step), placeOf(at, step)
			value, ok = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			if ok = err == nil && i < len(in); ok {
				value, s = in[i], s.Items
			}
		default:
			ok = false
		}
		if !ok || s == nil {
			return nil, nil, "", false
		}
		s = resolved(s, root)
	}
	return value, s, at, true
}

func propertyOf(s *schema.Schema, name string) *schema.Schema {
	if values, ok := s.Additional.(*schema.Schema); ok {
		return values
	}
	return s.Properties[name]
}

var (
	oddities = []any{nil, "", 0, -1, true, 1.5, 1e300, "0", []any{}, map[string]any{}, []any{nil},
		map[string]any{"a": "b"}, strings.Repeat("x", 5000)}
	durations = []any{"0s", "1ms", "5ms", "500ms", "1s", "2s", "5s", "10s", "30s", "1m30s", "1h", "1d", "1ns", "999us",
		"0.5ms", "-1s", "1y", "10y", "100y", "290y", "24h", "48h1ns", "876000h"}
	decimals = []any{0, 1, 2, 50, 100, 101, "0.5", "0.0001", "0.00001", "99.9999", "1.9", "1000", -1,
		json.Number("0.001"), json.Number("33.3333333333"), "4294967296", 1e15}
)

// texts are values of fields that have no form in the schema: names of headers, paths, regular expressions, formats,
// host names, SPIFFE IDs, and texts that are none of them.
var texts = []string{
	"a", "x-a", "x-version", "X-A", "host", ":path", ":method", "content-length", "x-envoy-a", "cookie", "te", "a b",
	"/", "/a", "/a/b", "/a/", "//", "/a?b=c", "/a#b", "/%", "/%zz", "/..", "/é", "/*", "/{a}", "/{a=*}",
	"(", "[", ".*", "^a$", "a|b", "(a*)*", "a{1000}", "(a{30}){30}", `\C`, `\pL{50}`, "(?i)a", "(?P<n>a)", `\`, "[^a]*",
	"%", "%%", "%REQ(", "%REQ(x-a)%", "%REQ(:path)%", "%ENVIRONMENT(HOME)%", "%START_TIME%", "%START_TIME(%s)%",
	"%NO_SUCH%", "%BYTES_SENT%", "%RESP(x-a?x-b):10%", "a%b", "[%START_TIME%] %RESPONSE_CODE%\n", "{{ .Name }}",
	"localhost", "example.com", "*.example.com", "*", "a.b", "A.B", "-a", "a_b", "a.b.", "127.0.0.1", "10.0.0.0/8",
	"::1", "fd00::/64", "1.2.3.4:80", "spiffe://", "spiffe://default.east.mesh.local/workload/web",
	"spiffe://default.east.mesh.local/", "spiffe://default.east.mesh.local", "spiffe://a b/c", "http://example.com/a",
	"https://example.com:443/", "http://[::1]:9411/api/v2/spans", "example.com:4317",
	"", " ", "\t", "\x00", "\x7f", "a\r\nb: c", "é", "日本", "\u202e", "\ufeff", "\U0001f600", "\u0130", "null",
	"true", "0", "1", "-1", "200", "503", "5xx", "600", "65535", "65536", "1e9", "0.5", "99999999999999999999",
	strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("b", 1025), strings.Repeat("é", 200),
	strings.Repeat("(", 1001), strings.Repeat("a.", 200),
}
