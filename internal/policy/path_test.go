package policy_test

import (
	"encoding/json"
	"testing"

	"weft/internal/policy"
)

// TestPathsOfConf compares the texts of paths, the list items that they lead into, and the values at which they end.
func TestPathsOfConf(t *testing.T) {
	document := json.RawMessage(`{"tags": {"a.b": 1, "0": 2}, "rules": [{"name": "x"}, {"name": "y", "codes": [7]}]}`)
	field, item := func(name string) policy.Step { return policy.Step{Field: name} },
		func(at int) policy.Step { return policy.Step{Item: at} }
	for _, c := range []struct {
		path               policy.Path
		text, field, value string
		rule               int // -1: none
	}{
		{policy.Path{field("tags"), field("a.b")}, "tags.a.b", "tags.a.b", "1", -1},
		{policy.Path{field("tags"), field("0")}, "tags.0", "tags.0", "2", -1},
		{policy.Path{field("rules"), item(1), field("name")}, "rules[1].name", "rules[].name", `"y"`, 1},
		{policy.Path{field("rules"), item(1), field("codes"), item(0)}, "rules[1].codes[0]", "rules[].codes[]", "7", 1},
		{policy.Path{field("rules"), item(2)}, "rules[2]", "rules[]", "", 2},
		{policy.Path{field("rules"), item(0), field("codes")}, "rules[0].codes", "rules[].codes", "", 0},
		{policy.Path{field("rules")}, "rules", "rules", `[{"name": "x"}, {"name": "y", "codes": [7]}]`, -1},
	} {
		if c.path.String() != c.text || c.path.Field() != c.field {
			t.Errorf("%q and %q, want %q and %q", c.path, c.path.Field(), c.text, c.field)
		}
		if value := string(c.path.ValueIn(document)); value != c.value {
			t.Errorf("%s: the value is %s, want %s", c.text, value, c.value)
		}
		if rule, ok := c.path.ItemOf("rules"); ok != (c.rule >= 0) || ok && rule != c.rule {
			t.Errorf("%s: the rule is %d, want %d", c.text, rule, c.rule)
		}
	}
}
