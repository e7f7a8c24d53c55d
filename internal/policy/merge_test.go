package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"weft/kind"
)

// everything has the forms of fields that conf does not have.
type everything struct {
	Embedded
	Type     string              `json:"type,omitempty"`
	Timeout  *kind.Duration      `json:"timeout,omitempty"`
	Weights  map[string]*int     `json:"weights,omitempty"`
	By       map[string]Embedded `json:"by,omitempty"`
	Inner    Embedded            `json:"inner"`
	Body     any                 `json:"body,omitempty"`
	Raw      json.RawMessage     `json:"raw,omitempty"`
	Next     *everything         `json:"next,omitempty"`
	Headers  []string            `json:"headers,omitempty" merge:"append"`
	Before   []string            `json:"before,omitempty" merge:"prepend"`
	ByName   []item              `json:"byName,omitempty" merge:"key=name"`
	Unnamed  *bool
	Replaced []item `json:"replaced,omitempty"`
}

// Embedded has its fields in the object that embeds it.
type Embedded struct {
	Port *int `json:"port,omitempty"`
	Size *int `json:"size,omitempty"`
}

type item struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// TestMergeOfEveryForm merges three confs and compares the conf and the origin of each value.
func TestMergeOfEveryForm(t *testing.T) {
	confs := []string{
		`{"port": 1, "size": 1, "type": "A", "timeout": "1s", "weights": {"a": 1, "b": 1},
		  "by": {"x": {"port": 1, "size": 1}}, "inner": {"size": 1},
		  "body": {"k": 1}, "raw": {"k": 1}, "next": {"type": "A", "headers": ["a"]}, "headers": ["a", "b"], "before": ["a", "b"],
		  "byName": [{"name": "x", "value": "1"}, {"name": "y", "value": "1"}, {"name": "x", "value": "2"}],
		  "Unnamed": true, "replaced": [{"name": "x"}]}`,
		`{"size": 2, "weights": {"b": 2}, "by": {"x": {"port": 2}, "y": {"port": 2}}, "inner": {"port": 2},
		  "next": {"headers": ["b"]}, "headers": ["c"], "before": ["c", "d"],
		  "byName": [{"name": "z", "value": "2"}, {"name": "x"}], "Unnamed": false, "replaced": []}`,
		`{"type": "", "timeout": "3s", "body": [3], "raw": 3}`,
	}
	p, err := NewPlan(&everything{})
	if err != nil {
		t.Fatal(err)
	}
	var parts []Part
	for i, raw := range confs {
		c := &everything{}
		if err := json.Unmarshal([]byte(raw), c); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, Part{Policy: &Policy{}, Index: i + 1, Conf: c})
	}
	before, _ := json.Marshal([]any{parts[0].Conf, parts[1].Conf, parts[2].Conf})
	merged := p.Merge(parts)
	got, err := json.Marshal(merged.Conf)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"port":1,"size":2,"type":"A","timeout":"3s","weights":{"a":1,"b":2},"by":{"x":{"port":2,"size":1},` +
		`"y":{"port":2}},"inner":{"port":2,"size":1},` +
		`"body":[3],"raw":3,"next":{"type":"A","inner":{},"headers":["a","b"],"Unnamed":null},` +
		`"headers":["a","b","c"],"before":["c","d","a","b"],` +
		`"byName":[{"name":"z","value":"2"},{"name":"x","value":"1"},{"name":"y","value":"1"}],"Unnamed":false}`
	if string(got) != want {
		t.Errorf("the conf is\n%s\nwant\n%s", got, want)
	}
	if list := merged.Conf.(*everything).Replaced; list == nil {
		t.Error("the empty list is absent, want it to be a value")
	}
	origins := strings.TrimSpace(merged.Origins.String())
	wantOrigins := `port [1]
size [2]
type [1]
timeout [3]
weights.a [1]
weights.b [2]
by.x.port [2]
by.x.size [1]
by.y.port [2]
inner.port [2]
inner.size [1]
body [3]
raw [3]
next.type [1]
next.headers[0] [1]
next.headers[1] [2]
headers[0] [1]
headers[1] [1]
headers[2] [2]
before[0] [2]
before[1] [2]
before[2] [1]
before[3] [1]
byName[0].name [2]
byName[0].value [2]
byName[1].name [2]
byName[1].value [1]
byName[2].name [1]
byName[2].value [1]
Unnamed [2]
replaced [2]`
	if origins != wantOrigins {
		t.Errorf("the origins are\n%s\nwant\n%s", origins, wantOrigins)
	}
	if after, _ := json.Marshal([]any{parts[0].Conf, parts[1].Conf, parts[2].Conf}); string(after) != string(before) {
		t.Errorf("the merged confs were changed to\n%s\nfrom\n%s", after, before)
	}
}

// TestKeysAreSets: matches in another order, with the default written or left out, are the same rule. Of equal rules in
// one conf the first one counts.
func TestKeysAreSets(t *testing.T) {
	w := newWorld(t, `
		a: Mesh > Mesh {"rules": [{"matches": [{"path": "/"}, {"path": "/a"}], "default": {"filters": ["F"]}}]}
		b: Dataplane > Mesh {"rules": [{"matches": [{"path": "/a"}, {}, {}], "default": {"backendRefs": ["B"]}}]}
		c: Dataplane > MeshService b {"rules": [{"matches": [{"path": "/c"}], "default": {"filters": ["C"]}},`+
		` {"matches": [{"path": "c"}], "default": {"backendRefs": ["C"]}}]}`, false)
	got, _ := w.effective(t, web(), "to b:http")
	want := `{"rules":[{"matches":[{"path":"/c"}],"default":{"filters":["C"]}},{"matches":[{"path":"/a"},{},{}],` +
		`"default":{"filters":["F"],"backendRefs":["B"]}}]}`
	if got != want {
		t.Errorf("the conf is %s, want %s", got, want)
	}
}

// TestPlansFail: a conf that cannot merge as its tags say is found when the control plane starts.
func TestPlansFail(t *testing.T) {
	for want, conf := range map[string]any{
		"a conf is a pointer to a struct, not <nil>":  nil,
		"a conf is a pointer to a struct, not string": "",
		`L: the tag merge:"union" is unknown`: &struct {
			L []string `merge:"union"`
		}{},
		`L: the tag merge:"" is unknown`: &struct {
			L []string `merge:""`
		}{},
		`S: the tag merge:"append" is for lists`: &struct {
			S string `merge:"append"`
		}{},
		"items of string have no fields": &struct {
			L []string `merge:"key=name"`
		}{},
		`items of policy.item have no field "Name"`: &struct {
			L []item `merge:"key=Name"`
		}{},
		"is neither a string nor a policy.Keyed": &struct {
			L []Embedded `merge:"key=port"`
		}{},
		"B: bool cannot be absent":          &struct{ B bool }{},
		"D: kind.Duration cannot be absent": &struct{ D kind.Duration }{},
		"T: kind.Time cannot be absent":     &struct{ T kind.Time }{},
		"N: int cannot be absent":           &struct{ Of *struct{ In struct{ N int } } }{},
		"hidden is neither":                 &struct{ hidden *int }{},
		"Embedded is neither":               &struct{ *Embedded }{},
	} {
		if _, err := NewPlan(conf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the plan of %T: the error is %v, want %q", conf, err, want)
		}
	}
}

// TestKindsHavePlans: the confs of all kinds of policies merge as their tags say.
func TestKindsHavePlans(t *testing.T) {
	for _, p := range kind.Policies() {
		if _, err := NewPlan(p.Conf()); err != nil {
			t.Errorf("%s: %v", p.Describe().Name, err)
		}
	}
}

// TestMergeOfNothing: without parts, the conf is empty.
func TestMergeOfNothing(t *testing.T) {
	merged := plan.Merge(nil)
	if got, _ := json.Marshal(merged.Conf); string(got) != "{}" || merged.Origins.String() != "" {
		t.Errorf("the conf is %s with origins %q, want none", got, merged.Origins)
	}
}

func TestOriginsCanBeReadInPart(t *testing.T) {
	w := newWorld(t, `a: Mesh = {"idle": 1, "detectors": {"totalFailures": 1}, "appendMatch": ["x", "y"]}`, false)
	origins := plan.Merge(w.applying(web(), "")).Origins
	for stop, want := range []string{"idle", "detectors.totalFailures", "appendMatch[0]", "appendMatch[1]"} {
		last, n := "", 0
		for path, origin := range origins.All() {
			if last, n = path.String(), n+1; n > stop {
				if origin.String() != "MeshTest m/a[0]" {
					t.Errorf("%s is from %s", path, origin)
				}
				break
			}
		}
		if last != want {
			t.Errorf("value %d is %s, want %s", stop, last, want)
		}
	}
}
