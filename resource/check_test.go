package resource_test

import (
	"slices"
	"strings"
	"testing"

	"weft/resource"
)

// sample is a spec with a field for each rule of values.
type sample struct {
	Name    string            `json:"name" schema:"required pattern=name" missing:"a name"`
	Mode    string            `json:"mode,omitempty" schema:"enum=A|B"`
	Kinds   []string          `json:"kinds,omitempty" schema:"required enum=A|B maxItems=2"`
	Port    uint32            `json:"port,omitempty" schema:"required port"`
	IP      string            `json:"ip,omitempty" schema:"ip"`
	Percent *uint32           `json:"percent,omitempty" schema:"min=1 max=100"`
	Least   *int32            `json:"least,omitempty" schema:"min=2" advice:"use another kind"`
	Most    int64             `json:"most,omitempty" schema:"max=5"`
	Life    string            `json:"life,omitempty" schema:"pattern=duration min=10s max=1d"`
	Share   *float64          `json:"share,omitempty" schema:"min=0.5 max=1"`
	Data    []byte            `json:"data,omitempty" schema:"maxLength=3"`
	Text    string            `json:"text,omitempty" schema:"maxLength=3"`
	Map     map[string]string `json:"map,omitempty" schema:"maxProperties=1 maxLength=3"`
	Items   []sampleItem      `json:"items,omitempty"`
	Inner   *sampleItem       `json:"inner,omitempty" schema:"required"`
	sampleEmbedded
}

type sampleItem struct {
	Zone string `json:"zone,omitempty" schema:"pattern=mesh"`
}

type sampleEmbedded struct {
	Section string `json:"section,omitempty" schema:"pattern=section"`
}

var holders = &resource.Kind[sample]{Info: resource.Info{Name: "Holder", Plural: "holders"}}

func number[N any](n N) *N { return &n }

func TestPrepareEnforcesRules(t *testing.T) {
	valid := func() sample {
		return sample{Name: "a", Kinds: []string{"A"}, Port: 1, Inner: &sampleItem{}}
	}
	for _, test := range []struct {
		change func(*sample)
		want   string
	}{
		{func(*sample) {}, ""},
		{func(h *sample) { *h = sample{} }, "spec.name: is required: a name; spec.kinds: is required: A, B; " +
			"spec.port: is 0, want a port from 1 to 65535; spec.inner: is required"},
		{func(h *sample) { h.Name = "A" }, `spec.name: "A" is not a name: lower case letters`},
		{func(h *sample) { h.Mode = "C" }, `spec.mode: is "C", want one of A, B`},
		{func(h *sample) { h.Kinds = []string{"A", "C"} }, `spec.kinds[1]: is "C", want one of A, B`},
		{func(h *sample) { h.Kinds = []string{"A", "B", "C"} }, "spec.kinds: has 3 items, want 2 at most"},
		{func(h *sample) { h.Port = 70_000 }, "spec.port: is 70000, want a port"},
		{func(h *sample) { h.IP = "::" }, "spec.ip: :: means every address; name one"},
		{func(h *sample) { h.Percent = new(uint32) },
			"spec.percent: is 0, want 1 to 100; leave it out for the default"},
		{func(h *sample) { h.Percent = number(uint32(101)) }, "spec.percent: is 101, want 1 to 100"},
		{func(h *sample) { h.Least = number(int32(1)) }, "spec.least: is 1, want at least 2; use another kind"},
		{func(h *sample) { h.Most = 6 }, "spec.most: is 6, want 5 at most"},
		{func(h *sample) { h.Life = "soon" }, `spec.life: "soon" is not a duration such as`},
		{func(h *sample) { h.Life = "1s" }, "spec.life: is 1s, want 10s to 1d"},
		{func(h *sample) { h.Share = number(0.25) }, "spec.share: is 0.25, want 0.5 to 1"},
		{func(h *sample) { h.Data = []byte("abcd") }, "spec.data: has 4 bytes, want 3 at most"},
		{func(h *sample) { h.Text = "éèàù" }, "spec.text: has 4 characters, want 3 at most"},
		{func(h *sample) { h.Text = "éèà" }, ""},
		{func(h *sample) { h.Map = map[string]string{"a": "b", "b": "c"} }, "spec.map: has 2 entries, want 1 at most"},
		{func(h *sample) { h.Map = map[string]string{"a": "long"} }, "spec.map[a]: has 4 characters, want 3 at most"},
		{func(h *sample) { h.Items = []sampleItem{{}, {"a.b"}} }, `spec.items[1].zone: "a.b" is not a name of a mesh`},
		{func(h *sample) { h.Section = "A" }, `spec.section: "A" is not a name`},
	} {
		spec := valid()
		test.change(&spec)
		var lines []string
		for _, p := range holders.Prepare(holders.Make("", "a", spec)) {
			lines = append(lines, p.String())
		}
		if got := strings.Join(lines, "; "); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Rules come after the defaults and before the validator, which gets what they found.
func TestPrepareOrder(t *testing.T) {
	var steps []string
	k := &resource.Kind[sample]{Info: holders.Info,
		Default: func(o *resource.Object[sample]) {
			steps = append(steps, "default")
			o.Spec.Port = 1
		},
		Validate: func(_ *resource.Object[sample], found resource.Problems) resource.Problems {
			for _, p := range found {
				steps = append(steps, p.Field)
			}
			return append(found, resource.Problem{Field: "spec", Reason: "is wrong"})
		}}
	problems := k.Prepare(k.Make("", "a", sample{Name: "a", Kinds: []string{"A"}}))
	if want := []string{"default", "spec.inner"}; !slices.Equal(steps, want) || len(problems) != 2 {
		t.Errorf("%v, then %v, want %v and two problems", steps, problems, want)
	}
}

// The rows that a control plane writes for itself may have parts of other kinds that are not whole.
func TestOwnRowsHaveNoRules(t *testing.T) {
	info := holders.Info
	info.ReadOnly, info.Hidden = true, true
	for sync, want := range map[resource.Sync]int{0: 0, resource.ZoneToGlobal: 4} {
		info.Sync = sync
		k := &resource.Kind[sample]{Info: info}
		if got := k.Prepare(k.Make("", "a", sample{})); len(got) != want {
			t.Errorf("with the sync %v: %v, want %d problems", sync, got, want)
		}
	}
}

// Problems are in the order of the document, also where the validator finds them.
func TestPrepareSortsProblems(t *testing.T) {
	k := &resource.Kind[sample]{Info: holders.Info,
		Validate: func(_ *resource.Object[sample], found resource.Problems) resource.Problems {
			for _, field := range []string{"spec.section", "spec.items[10]", "spec.items[2].zone", "spec.kinds", "name",
				"spec", "labels[b]", "spec.map[b]", "spec.map[a]", "spec.unknown", "spec.items[2]"} {
				found.Add(field, "is wrong")
			}
			return found
		}}
	var fields []string
	for _, p := range k.Prepare(k.Make("", "a", sample{Name: "a", Kinds: []string{"A"}})) {
		fields = append(fields, p.Field)
	}
	want := []string{"name", "labels[b]", "spec", "spec.kinds", "spec.port", "spec.map[a]", "spec.map[b]",
		"spec.items[2]", "spec.items[2].zone", "spec.items[10]", "spec.inner", "spec.section", "spec.unknown"}
	if !slices.Equal(fields, want) {
		t.Errorf("%q, want %q", fields, want)
	}
}
