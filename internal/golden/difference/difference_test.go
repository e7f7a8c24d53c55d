package difference_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"weft/internal/golden"
	"weft/internal/golden/difference"
)

// Each file of testdata has a base, a golden, and the difference as it is written.
func TestFormat(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		text, err := difference.Format("NAME", golden.Section(scenario, "base"), golden.Section(scenario, "golden"))
		if err != nil {
			t.Fatal(err)
		}
		golden.Set(scenario, "difference", strings.TrimPrefix(text, "base: NAME\n"))
	})
}

// Every golden has a difference from every other, and Expand makes its bytes again: Format returns an error where it
// does not.
func TestExpandIsTheInverseOfFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, golden := drawGolden(t, "base"), drawGolden(t, "golden")
		if text, err := difference.Format("NAME", base, golden); err != nil {
			t.Fatalf("%v\nbase:\n%s\ngolden:\n%s\ndifference:\n%s", err, base, golden, text)
		}
	})
}

func drawGolden(t *rapid.T, label string) string {
	var out strings.Builder
	header := rapid.SampledFrom([]string{"cluster a", "cluster b", "cluster ab", "listener a", "listener /a~b"})
	headers := rapid.SliceOfNDistinct(header, 0, -1, rapid.ID[string]).Draw(t, label)
	for _, header := range headers {
		text, err := yaml.Marshal(drawValue(3).Draw(t, header))
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("--- # " + header + "\n" + string(text))
	}
	return out.String()
}

// drawValue draws values whose keys and names have the characters that paths are made of.
func drawValue(depth int) *rapid.Generator[any] {
	scalar := rapid.SampledFrom([]any{nil, true, 0, 1, 4294967295, 0.5, "", "0", "a", "+a", "-1", "a: b\nc", "no"})
	if depth == 0 {
		return scalar.AsAny()
	}
	key := rapid.SampledFrom([]string{"name", "a", "b", "a/b", "~1", "'", "1"})
	fields := rapid.MapOfN(key, drawValue(depth-1), 0, 4)
	named := rapid.Custom(func(t *rapid.T) map[string]any {
		all := fields.Draw(t, "fields")
		all["name"] = rapid.SampledFrom([]string{"a", "b", "a/b", "~", "0", "no", "after a"}).Draw(t, "name")
		return all
	})
	return rapid.OneOf(scalar.AsAny(), fields.AsAny(), rapid.SliceOfN(drawValue(depth-1), 0, 4).AsAny(),
		rapid.SliceOfN(named, 0, 4).AsAny())
}

// A difference that is not so of its base is an error, so that it does not lose its effect unnoticed.
func TestExpandErrors(t *testing.T) {
	const base = `--- # cluster a
timeout: 1s
hosts:
- name: x
  port: 1
ports: [1, 2]
--- # cluster b
`
	for _, c := range []struct{ name, difference, message string }{
		{"unknown operation", "--- # cluster a\ntimeout: 2s\n", `begins with "changed ", "new " or "removed "`},
		{"no header", "timeout: 2s\n", `begins with "--- # "`},
		{"removed and absent", "--- # removed cluster c\n", `there is no document "cluster c"`},
		{"changed and absent", "--- # changed cluster c\ntimeout: 1s\n", `there is no document "cluster c"`},
		{"changed without changes", "--- # changed cluster a\n", "has no changes"},
		{"new and present", "--- # new cluster a, first\n", "is not new"},
		{"new without a place", "--- # new cluster c\n", `there is no document ""`},
		{"new after an absent one", "--- # new cluster c, after cluster d\n", `there is no document "cluster d"`},
		{"like an absent one", "--- # new cluster c, like cluster d, first\n", `there is no document "cluster d"`},
		{"the same value", "--- # changed cluster a\ntimeout: 1s\n", "timeout: the base has the same value"},
		{"an absent field", "--- # changed cluster a\nhost: x\n", "host: the base does not have it"},
		{"an absent field to remove", "--- # changed cluster a\n-host:\n", "host: the base does not have it"},
		{"a present field", "--- # changed cluster a\n+timeout: 2s\n", "timeout: the base has it too"},
		{"an absent element", "--- # changed cluster a\nhosts/y/port: 2\n", "hosts: y: the base does not have it"},
		{"an absent position", "--- # changed cluster a\nports/2: 3\n", "ports: 2: the base does not have it"},
		{"after an absent element", "--- # changed cluster a\n+hosts/after y: [{}]\n",
			"hosts: after y: elements are inserted"},
		{"no list of new elements", "--- # changed cluster a\n+ports/first: 3\n",
			"ports: first: elements are inserted as a list"},
		{"below a scalar", "--- # changed cluster a\ntimeout/s: 3\n", "timeout: the base has 1s there"},
		{"two paths to a value", "--- # changed cluster a\nports/0: 3\nports/:\n  0: 4\n", "is in two paths"},
		{"below a new value", "--- # changed cluster a\ntimeout: 2s\ntimeout/s: 4\n", "timeout"},
		{"no paths below", "--- # changed cluster a\nports/: 3\n", "ports/: there are no paths below it"},
		{"twice", "--- # changed cluster a\ntimeout: 2s\ntimeout: 3s\n", `already set`},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden, err := difference.Expand("base: NAME\n"+c.difference, base)
			if err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%v, want %q\n%s", err, c.message, golden)
			}
		})
	}
}

// A golden that is no series of unique documents has no difference.
func TestFormatErrors(t *testing.T) {
	for text, message := range map[string]string{
		"a: b\n":                        `begins with "--- # "`,
		"--- # a b\n--- # a b\n":        `two documents are "a b"`,
		"--- # a b\n{\n":                "a b: yaml",
		"--- # a b\nb: 1\na: 1\n":       "write it as a whole",
		"--- # a b, after a c\na: 1\n":  "write it as a whole",
		"--- # a b\na: 2\n--- # a c\n{": "yaml",
	} {
		if _, err := difference.Format("NAME", "--- # a b\na: 2\n--- # a d\na: 1\n", text); err == nil ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("%q: %v, want %q", text, err, message)
		}
	}
}
