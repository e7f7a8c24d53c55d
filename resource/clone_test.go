package resource_test

import (
	"reflect"
	"testing"
	"time"

	"weft/resource"
)

// shelfmark is a spec with a field of every shape.
type shelfmark struct {
	Text     string
	Number   float64
	Flag     bool
	Bytes    []byte
	Pointer  *string            `json:"pointer,omitempty"`
	List     []shelfmark        `json:"list"`
	Omitted  []string           `json:"omitted,omitempty"`
	Map      map[string]*string `json:"map,omitempty"`
	Kept     map[string]int     `json:"kept"`
	Deep     map[string][]string
	Time     time.Time `json:"time,omitzero"`
	Any      any
	Excluded string `json:"-"`
	hidden   string
}

var shelfmarks = &resource.Kind[shelfmark]{Info: resource.Info{Name: "Shelfmark", Plural: "shelfmarks",
	Scope: resource.Mesh}}

func fullShelfmark() *resource.Object[shelfmark] {
	text := "text"
	inner := shelfmark{Text: "inner", Map: map[string]*string{"a": &text, "b": nil}}
	o := shelfmarks.Make("m", "a", shelfmark{
		Text: "bad \xff\xfe UTF-8", Number: 1.5, Flag: true, Bytes: []byte("bytes"), Pointer: &text,
		List: []shelfmark{inner, {}}, Omitted: []string{}, Map: map[string]*string{}, Kept: map[string]int{"k": 1},
		Deep:     map[string][]string{"d": {"x", "y"}, "e": {}, "n": nil},
		Time:     time.Date(2030, 1, 1, 0, 0, 0, 5, time.FixedZone("here", 3600)),
		Any:      map[string]any{"n": 1.0, "l": []any{"a"}},
		Excluded: "excluded", hidden: "hidden",
	})
	o.Version, o.Created = "7", time.Unix(1, 0)
	o.Labels = map[string]string{"l": "v"}
	o.Vouched = resource.Vouched{Operator: []string{"a"}, Token: []string{}}
	return o
}

// A clone is what comes back from the stored form.
func TestCloneIsTheStoredForm(t *testing.T) {
	empty := shelfmarks.Make("m", "a", shelfmark{Kept: map[string]int{}, List: []shelfmark{}, Bytes: []byte{}})
	empty.Labels = map[string]string{}
	for _, o := range []*resource.Object[shelfmark]{fullShelfmark(), empty, shelfmarks.Make("m", "a", shelfmark{})} {
		body, err := resource.Body(o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := resource.FromBody(shelfmarks, o.Meta, body)
		if err != nil {
			t.Fatal(err)
		}
		if got := resource.Clone(o); !reflect.DeepEqual(got, want) {
			t.Errorf("the clone is\n%#v\nwant\n%#v", got, want)
		}
	}
}

// A change of a clone does not change the object.
func TestACloneSharesNothing(t *testing.T) {
	o := fullShelfmark()
	c := resource.Clone(o).(*resource.Object[shelfmark])
	c.Labels["l"], c.Vouched.Operator[0], c.Spec.Bytes[0], *c.Spec.Pointer = "changed", "changed", 'X', "changed"
	*c.Spec.List[0].Map["a"], c.Spec.List[1].Text, c.Spec.Kept["k"], c.Spec.Deep["d"][0] = "changed", "changed", 2,
		"changed"
	c.Spec.Any.(map[string]any)["n"] = "changed"
	if want := fullShelfmark(); !reflect.DeepEqual(o, want) {
		t.Errorf("the object is\n%#v\nwant\n%#v", o, want)
	}
}

// A value without a JSON form fails when it is encoded, not when it is cloned.
func TestACloneOfWhatJSONLacks(t *testing.T) {
	o := shelfmarks.Make("m", "a", shelfmark{Any: func() {}})
	if _, err := resource.Body(resource.Clone(o)); err == nil {
		t.Error("the clone of a function is encoded")
	}
}
