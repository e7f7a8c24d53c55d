package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// span is a conf with a minimum and a maximum, which belong together.
type span struct {
	Low  *int `json:"low,omitempty"`
	High *int `json:"high,omitempty"`
	Step *int `json:"step,omitempty"`
}

func spanPlan(t *testing.T) *Plan {
	t.Helper()
	plan, err := NewPlan(&span{})
	if err != nil {
		t.Fatal(err)
	}
	plan.Combination = &kind.Combination[any]{
		Partial: func(conf any) bool { return (conf.(*span).Low == nil) != (conf.(*span).High == nil) },
		Conflict: func(conf any) string {
			if s := conf.(*span); s.Low != nil && s.High != nil && *s.Low > *s.High {
				return fmt.Sprintf("%d is above %d", *s.Low, *s.High)
			}
			return ""
		},
	}
	return plan
}

// TestMergeOfContradictingConfs: the last part of a contradiction has no effect, all others have.
func TestMergeOfContradictingConfs(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		name  string
		confs []span // ascending
		want  string
	}{
		{"none", nil, "low - high - step -"},
		{"valid ones", []span{{Low: n(1)}, {High: n(2)}}, "low 1 high 2 step -, merged 0 1"},
		{"two", []span{{Low: n(3)}, {High: n(2)}}, "low 3 high - step -, merged 0, 1: 3 is above 2"},
		{"the other order", []span{{High: n(2)}, {Low: n(3)}}, "low - high 2 step -, merged 0, 1: 3 is above 2"},
		{"a later part that has nothing to do with it", []span{{Low: n(3)}, {High: n(2)}, {Step: n(1)}},
			"low 3 high - step 1, merged 0 2, 1: 3 is above 2"},
		{"another field of the part is lost too", []span{{Low: n(3)}, {High: n(2), Step: n(1)}},
			"low 3 high - step -, merged 0, 1: 3 is above 2"},
		{"a later part that overrides it", []span{{Low: n(3)}, {High: n(2)}, {High: n(4)}},
			"low 3 high 4 step -, merged 0 1 2"},
		{"each of two parts contradicts the first", []span{{Low: n(3)}, {High: n(2)}, {High: n(1)}},
			"low 3 high - step -, merged 0, 1: 3 is above 2, 2: 3 is above 1"},
		{"a contradiction that is gone before another one",
			[]span{{Low: n(3)}, {High: n(2)}, {High: n(4)}, {Low: n(5)}},
			"low 3 high 4 step -, merged 0 1 2, 3: 5 is above 4"},
		{"a stored conf that contradicts itself", []span{{Low: n(3), High: n(2)}},
			"low - high - step -, 0: 3 is above 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var parts []Part
			for i := range c.confs {
				key := resource.Key{Kind: "MeshTest", Mesh: "m", Name: fmt.Sprint(i)}
				p := New(key, &resource.Meta{Name: key.Name}, TargetOf((*kind.TargetRef)(nil)))
				parts = append(parts, Part{Policy: p, Conf: &c.confs[i]})
			}
			before := slices.Clone(parts)
			if got := describe(spanPlan(t).Merge(parts)); got != c.want {
				t.Errorf("the merged conf is %s, want %s", got, c.want)
			}
			if !slices.EqualFunc(parts, before, func(a, b Part) bool { return a.Conf == b.Conf }) {
				t.Error("the parts have changed")
			}
		})
	}
}

func describe(m Merged) string {
	number := func(n *int) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	s := m.Conf.(*span)
	text := fmt.Sprintf("low %s high %s step %s", number(s.Low), number(s.High), number(s.Step))
	if len(m.Parts) > 0 {
		var names []string
		for _, part := range m.Parts {
			names = append(names, part.Policy.Name)
		}
		text += ", merged " + strings.Join(names, " ")
	}
	rejected := slices.Clone(m.Rejected)
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.Origin.String(), b.Origin.String()) })
	for _, r := range rejected {
		text += fmt.Sprintf(", %s: %s", r.Origin.Policy.Name, r.Reason)
	}
	return text
}
