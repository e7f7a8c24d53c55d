package resource_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft/resource"
)

// rack is a kind with every shape of field.
type rack struct {
	Height uint32            `json:"height,omitempty"`
	Open   *bool             `json:"open,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`
	Books  []book            `json:"books,omitempty"`
	Stamp  []byte            `json:"stamp,omitempty"`
	Lent   *loan             `json:"lent,omitempty"`
}

type book struct {
	Title string `json:"title"`
	Pages uint32 `json:"pages,omitempty"`
	Loan  loan   `json:"loan,omitzero"`
}

// loan has a text form of its own.
type loan string

func (l *loan) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "never" {
		return errors.New("a loan is a name")
	}
	*l = loan(text)
	return nil
}

var (
	replaced = map[string]string{"books.author": "has no meaning here; use title"}
	racks    = &resource.Kind[rack]{Info: resource.Info{Name: "Rack", ShortName: "sh", Scope: resource.Mesh,
		Replaced: replaced}}
	flats = &resource.Kind[rack]{Info: resource.Info{Name: "Flat", Scope: resource.Mesh, Flat: true,
		Replaced: replaced}}
	hidden = &resource.Kind[rack]{Info: resource.Info{Name: "Hidden", Hidden: true}}
)

func lookup(name string) resource.Descriptor {
	switch name {
	case "Rack":
		return racks
	case "Flat":
		return flats
	case "Hidden":
		return hidden
	}
	return nil
}

func TestParse(t *testing.T) {
	want := rack{Height: 3, Books: []book{{Title: "a", Pages: 1}}}
	for _, test := range []struct{ name, kind, doc string }{
		{"universal", "Rack", `
type: Rack
mesh: m
name: s
labels: {a: b}
spec: {height: 3, books: [{title: a, pages: 1}]}
status: {whatever: true}
creationTime: 2020-01-01T00:00:00Z`},
		{"universal, flat", "Flat", `
type: Flat
mesh: m
name: s
labels: {a: b}
height: 3
books: [{title: a, pages: 1}]`},
		{"universal, flat under spec", "Flat", `
type: Flat
mesh: m
name: s
labels: {a: b}
spec: {height: 3, books: [{title: a, pages: 1}]}`},
		{"the mesh as a label", "Rack", `
type: Rack
name: s
labels: {a: b, kuma.io/mesh: m}
spec: {height: 3, books: [{title: a, pages: 1}]}`},
		{"kubernetes", "Rack", `
apiVersion: kuma.io/v1alpha1
kind: Rack
metadata:
  {name: s, namespace: "", labels: {a: b, kuma.io/mesh: m}, annotations: {x: y}, creationTimestamp: null, uid: u,
   deletionGracePeriodSeconds: 1, deletionTimestamp: null, finalizers: [a], generateName: s-, generation: 2,
   managedFields: [{manager: kubectl}], ownerReferences: [], resourceVersion: "1", selfLink: /x}
spec: {height: 3, books: [{title: a, pages: 1}]}`},
		{"kubernetes, mesh beside", "Rack", `
apiVersion: kuma.io/v1alpha1
kind: Rack
mesh: m
metadata: {name: s, labels: {a: b}}
spec: {height: 3, books: [{title: a, pages: 1}]}`},
		{"kubernetes, flat", "Flat", `
apiVersion: kuma.io/v1alpha1
kind: Flat
metadata: {name: s, labels: {a: b, kuma.io/mesh: m}}
height: 3
spec: {books: [{title: a, pages: 1}]}`},
		{"JSON with tabs", "Flat", "{\n\t\"type\": \"Flat\", \"mesh\": \"m\", \"name\": \"s\", \"labels\": {\"a\": " +
			"\"b\"},\n\t\t\"height\": 3, \"books\": [{\"title\": \"a\", \"pages\": 1}]}"},
		{"a document mark and comments", "Flat",
			"# one\n---\n# two\n{type: Flat, mesh: m, name: s, labels: {a: b}, height: 3, books: [{title: a, pages: " +
				"1}]}\n---\n# end\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := resource.Parse([]byte(test.doc), lookup)
			if err != nil {
				t.Fatal(err)
			}
			if want := (resource.Key{Kind: test.kind, Mesh: "m", Name: "s"}); o.Key() != want {
				t.Errorf("key is %v, want %v", o.Key(), want)
			}
			if d := cmp.Diff(map[string]string{"a": "b"}, o.Envelope().Labels); d != "" {
				t.Error("labels:", d)
			}
			if d := cmp.Diff(&want, resource.SpecOf(o)); d != "" {
				t.Error("spec:", d)
			}
		})
	}
}

// TestParseRejects requires every problem at its path.
func TestParseRejects(t *testing.T) {
	for _, test := range []struct {
		name, doc string
		want      []string // lines of the error
	}{
		{"nothing", ``, []string{"a resource is a mapping"}},
		{"a list", `[1]`, []string{"a resource is a mapping"}},
		{"no YAML", "a: [", []string{"not YAML"}},
		{"a key twice", "type: Rack\ntype: Rack", []string{"not YAML", `"type" already set`}},
		{"two documents", "type: Rack\nname: a\n---\ntype: Rack\nname: b", []string{"several documents"}},
		{"no type", `{name: s}`, []string{"\n  type: is required"}},
		{"an unknown type", `{type: Shelve, name: s}`, []string{"\n  type: \"Shelve\" is not a type"}},
		{"a hidden type", `{type: Hidden, name: s}`, []string{"\n  type: \"Hidden\" is not a type"}},
		{"another apiVersion", `{apiVersion: v1, kind: Rack, metadata: {name: s}}`,
			[]string{`the apiVersion of Rack s is "v1", want "kuma.io/v1alpha1"`}},
		{"two forms", `{apiVersion: kuma.io/v1alpha1, kind: Rack, metadata: {name: s}, name: t}`,
			[]string{"\n  name: does not go with apiVersion"}},
		{"a name that is a number", `{type: Rack, name: 1}`,
			[]string{"\n  name: is a number, want a string (quote it)"}},
		{"a label that is a number", `{type: Rack, name: s, labels: {a: 1}}`,
			[]string{"\n  labels[a]: is a number, want a string (quote it)"}},
		{"two meshes", `{type: Rack, name: s, mesh: m, labels: {kuma.io/mesh: other}}`,
			[]string{"\n  labels[kuma.io/mesh]: is \"other\""}},
		{"a spec that is a list", `{type: Rack, mesh: m, name: s, spec: [1]}`,
			[]string{"Rack m/s is invalid", "\n  spec: must be a mapping"}},
		{"fields beside spec", `{type: Rack, name: s, height: 3}`,
			[]string{"\n  height: is not a field of Rack; its fields stand under `spec`"}},
		{"unknown fields, all of them",
			`{type: Rack, name: s, spec: {hight: 1, books: [{title: a}, {titel: b, pages: 1}], tags: {any: thing}}}`,
			[]string{"\n  spec.hight: is not a known field", "\n  spec.books[1].titel: is not a known field"}},
		{"another case", `{type: Rack, name: s, spec: {Height: 1}}`, []string{"\n  spec.Height: is not a known field"}},
		{"unknown fields of a flat kind", `{type: Flat, name: s, hight: 1}`,
			[]string{"\n  hight: is not a known field"}},
		{"a field that is replaced", `{type: Rack, name: s, spec: {books: [{author: x}]}}`,
			[]string{"\n  spec.books[0].author: has no meaning here; use title"}},
		{"values of other types, all of them",
			`{type: Flat, name: s, height: tall, open: 1, tags: {a: true}, books: [{title: a, pages: -1}, {title: ` +
				`[x], pages: 1.5}]}`,
			[]string{
				"\n  height: is a string, want a whole number, not negative",
				"\n  open: is a number, want true or false",
				"\n  tags[a]: is true or false, want a string (quote it)",
				"\n  books[0].pages: is a number -1, want a whole number, not negative",
				"\n  books[1].pages: is a number 1.5, want",
				"\n  books[1].title: is a list, want a string (quote it)",
			}},
		{"a mapping for a list", `{type: Flat, name: s, books: {title: a}}`,
			[]string{"\n  books: is a mapping, want a list"}},
		{"a list for a mapping", `{type: Flat, name: s, tags: [a]}`, []string{"\n  tags: is a list, want a mapping"}},
		{"a list for base64", `{type: Flat, name: s, stamp: [116, 101]}`,
			[]string{"\n  stamp: is a list, want text in base64"}},
		{"a mapping for base64", `{type: Flat, name: s, stamp: {a: b}}`,
			[]string{"\n  stamp: is a mapping, want text in base64"}},
		{"no base64", `{type: Flat, name: s, stamp: "?"}`,
			[]string{"\n  stamp: is not base64, from its character 1 on"}},
		{"a value that reads itself", `{type: Flat, name: s, lent: never, books: [{title: a, loan: 3}]}`,
			[]string{"\n  lent: a loan is a name", "\n  books[0].loan: a loan is a name"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := resource.Parse([]byte(test.doc), lookup)
			if resource.CodeOf(err) != resource.Invalid {
				t.Fatalf("the error is %v, want one that is Invalid", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%s", want, err)
				}
			}
			var rejected *resource.Error
			errors.As(err, &rejected)
			if wanted := strings.Count(strings.Join(test.want, ""), "\n"); len(rejected.Problems) != wanted {
				t.Errorf("%d problems, want %d:\n%s", len(rejected.Problems), wanted, err)
			}
		})
	}
}

func anyRack(t *rapid.T) rack {
	word := rapid.StringMatching(`[a-z: #'"{}\[\]é-]{0,8}`)
	s := rack{
		Height: rapid.Uint32().Draw(t, "height"),
		Stamp:  rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "stamp"),
		Tags:   rapid.MapOfN(word, word, 1, 3).Draw(t, "tags"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "books") {
		s.Books = append(s.Books, book{Title: word.Draw(t, "title"), Pages: rapid.Uint32().Draw(t, "pages")})
	}
	return s
}

// TestCharactersOfJSON: a document of JSON keeps each character that JSON permits in a string, also those that YAML
// rejects or takes for line breaks, however the document is laid out.
// TestNothingFollowsAResource: the reader of YAML would omit it.
func TestNothingFollowsAResource(t *testing.T) {
	for _, document := range []string{
		`{"type": "Rack", "mesh": "m", "name": "a"} {"type": "Rack", "mesh": "m", "name": "b"}`,
		`{"type": "Rack", "mesh": "m", "name": "a"}` + "\n" + `{"type": "Rack", "mesh": "m", "name": "b"}`,
		`{"type": "Rack", "mesh": "m", "name": "a"} x`, `{"type": "Rack", "mesh": "m", "name": "a"}}`,
		"# a rack\n{type: Rack, mesh: m, name: a} {type: Rack, mesh: m, name: b}", "{type: Rack, mesh: m, name: a}\n]",
		"!!map {type: Rack, mesh: m, name: a} x", "&a {type: Rack, mesh: m, name: a} x",
	} {
		if o, err := resource.Parse([]byte(document), lookup); resource.CodeOf(err) != resource.Invalid {
			t.Errorf("%s is read as %v, with the error %v", document, o, err)
		}
	}
	for _, document := range []string{`{"type": "Rack", "mesh": "m", "name": "a"}` + "\n\n",
		"{type: Rack, mesh: m, name: a} # of flow\n# end\n", "type: Rack\nmesh: m\nname: a\n"} {
		if _, err := resource.Parse([]byte(document), lookup); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
}

// TestMetadata: a field that no object has is an error, and those that `kubectl get -o yaml` prints are not.
func TestMetadata(t *testing.T) {
	const head = `{"apiVersion": "kuma.io/v1alpha1", "kind": "Rack", "metadata": {"name": "a", "labels": ` +
		`{"kuma.io/mesh": "m"}, %s}}`
	for metadata, want := range map[string]string{
		`"mesh": "shop"`: "metadata.mesh: is not a field of Kubernetes; write the label `kuma.io/mesh`",
		`"lables": {}`:   "metadata.lables: is not a field of Kubernetes; labels are in `metadata.labels`",
		`"annotations": {}, "uid": "u", "resourceVersion": "1", "generation": 1, "managedFields": [], "selfLink": "/", ` +
			`"ownerReferences": [], "finalizers": [], "creationTimestamp": null`: "",
	} {
		_, err := resource.Parse(fmt.Appendf(nil, head, metadata), lookup)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", metadata, err, want)
		}
	}
}

func TestCharactersOfJSON(t *testing.T) {
	for r := rune(0x20); r <= 0xffff; r++ {
		if r >= 0x3000 && r < 0xe000 || strings.ContainsRune("\"\\", r) { // of scripts, and the two that JSON escapes
			continue
		}
		title := "a" + string(r) + "b"
		doc := "{\r\n\t\"type\": \"Rack\", \"mesh\": \"m\", \"name\": \"a\",\r\n\"spec\": {\"books\": [{\"title\": \"" +
			title + "\"}]}}"
		o, err := resource.Parse([]byte(doc), lookup)
		if err != nil {
			t.Fatalf("%U: %v", r, err)
		}
		if got := resource.SpecOf(o).(*rack).Books[0].Title; got != title {
			t.Errorf("%U: read as %q, want %q", r, got, title)
		}
	}
}

// TestRoundTrip writes random resources in both forms and in the stored one, and reads them again.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]*resource.Kind[rack]{racks, flats}).Draw(t, "kind")
		o := kind.Make("m", "s", anyRack(t))
		o.Labels = map[string]string{"a": "b"}
		o.Created = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		for _, form := range []resource.Form{resource.Universal, resource.Kubernetes} {
			doc, err := resource.MarshalJSON(o, nil, kind, form)
			if err != nil {
				t.Fatal(err)
			}
			again, err := resource.Parse(doc, lookup)
			if err != nil {
				t.Fatalf("%s\n%s", err, doc)
			}
			wantSame(t, o, again)
		}
		body, err := resource.Body(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := resource.FromBody(kind, resource.Meta{Mesh: "m", Name: "s"}, body)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, o, again)
	})
}

func wantSame(t *rapid.T, want, got resource.Any) {
	t.Helper()
	if want.Key() != got.Key() {
		t.Errorf("key is %v, want %v", got.Key(), want.Key())
	}
	if d := cmp.Diff(want.Envelope().Labels, got.Envelope().Labels); d != "" {
		t.Error("labels:", d)
	}
	if d := cmp.Diff(resource.SpecOf(want), resource.SpecOf(got)); d != "" {
		t.Error("spec:", d)
	}
}

func TestMarshalJSON(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	o := racks.Make("m", "s", rack{Height: 3})
	o.Labels, o.Created, o.Modified = map[string]string{"a": "b"}, created, created.Add(time.Second)
	flat := flats.Make("m", "s", rack{Height: 3})
	status := hidden.Make("m", "s", rack{Height: 9})
	for _, test := range []struct {
		name   string
		object resource.Any
		kind   resource.Descriptor
		form   resource.Form
		status resource.Any
		want   string
	}{
		{"universal", o, racks, resource.Universal, status,
			`{"type":"Rack","mesh":"m","name":"s","creationTime":"2026-01-02T03:04:05.0000006Z",` +
				`"modificationTime":"2026-01-02T03:04:06.0000006Z","labels":{"a":"b","kuma.io/mesh":"m"},` +
				`"kri":"kri_sh_m___s_","spec":{"height":3},"status":{"height":9}}`},
		{"flat", flat, flats, resource.Universal, nil, `{"type":"Flat","mesh":"m","name":"s","height":3}`},
		{"kubernetes", o, racks, resource.Kubernetes, status,
			`{"apiVersion":"kuma.io/v1alpha1","kind":"Rack","metadata":{"name":"s",` +
				`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b","kuma.io/mesh":"m"}},` +
				`"spec":{"height":3},"status":{"height":9}}`},
	} {
		got, err := resource.MarshalJSON(test.object, test.status, test.kind, test.form)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n got %s\nwant %s", test.name, err, got, test.want)
		}
	}
	if _, ok := o.Labels[resource.MeshLabel]; ok {
		t.Error("writing the Kubernetes form changed the object")
	}
}

func TestFromBodyDropsWhatALaterReleaseWrote(t *testing.T) {
	o, err := resource.FromBody(racks, resource.Meta{Name: "s"}, []byte(`{"spec":{"height":3,"width":4},"more":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if height := resource.SpecOf(o).(*rack).Height; height != 3 {
		t.Errorf("height is %d, want 3", height)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("type: Rack\nname: s\nspec: {height: 3, books: [{title: a}]}"))
	f.Add([]byte("type: Flat\nname: s\nlabels: {kuma.io/mesh: m}\nstamp: c2VjcmV0"))
	f.Add([]byte(`{"apiVersion":"kuma.io/v1alpha1","kind":"Rack","metadata":{"name":"s"},"spec":{"tags":{"a":"b"}}}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, err := resource.Parse(doc, lookup)
		if err != nil {
			if resource.CodeOf(err) != resource.Invalid {
				t.Fatalf("%v is not an error for users", err)
			}
			return
		}
		written, err := resource.MarshalJSON(o, nil, lookup(o.Key().Kind), resource.Universal)
		if err != nil {
			t.Fatal(err)
		}
		again, err := resource.Parse(written, lookup)
		if err != nil {
			t.Fatalf("%s\nwas written as\n%s\nand then: %v", doc, written, err)
		}
		if o.Key() != again.Key() {
			t.Fatalf("%v became %v", o.Key(), again.Key())
		}
	})
}
