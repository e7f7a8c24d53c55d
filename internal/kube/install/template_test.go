package install

import (
	"maps"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

// constructs are templates with what the chart uses, and templates that fail.
var constructs = []string{
	`a {{ .text }} {{- " b " }} {{ .missing }}|{{ .number }}|{{ .float }}|{{ .up }}|{{ .list }}`,
	`{{ .map.inner.deep }}{{ $.map.inner.deep }}{{ (index .list 1) }}{{ (dict "a" 1).a }}{{ index .map "inner" "deep" }}`,
	`{{ index .map "none" }}{{ index .map "none" | default "x" }}{{ index .list }}`,
	`{{ $x := 1 }}{{ if .up }}{{ $x = 2 }}{{ $y := 3 }}{{ $x }}{{ $y }}{{ end }}{{ $x }}`,
	`{{ if .down }}1{{ else if .text }}2{{ else }}3{{ end }}{{ if .empty }}4{{ end }}{{ if .zero }}5{{ end }}`,
	`{{ with .map }}{{ .inner.deep }}{{ $.text }}{{ else }}none{{ end }}{{ with .missing }}{{ else }}{{ .text }}{{ end }}`,
	`{{ range .list }}{{ . }},{{ else }}none{{ end }}{{ range .missing }}{{ else }}none{{ end }}{{ range $i, $v := .list }}{{ $i }}{{ $v }}{{ end }}`,
	`{{ range $k, $v := .words }}{{ $k }}={{ $v }} {{ end }}{{ range $v := .list }}{{ $v }}{{ end }}{{ range splitList "," .text }}[{{ . }}]{{ end }}`,
	`{{ $sum := "" }}{{ range .list }}{{ $sum = printf "%s%v" $sum . }}{{ end }}{{ $sum }}`,
	`{{ and .up .text }}|{{ and .down .fails.here }}|{{ or .down .text }}|{{ or .text .fails.here }}|{{ .down | or .empty }}|{{ not .down }}`,
	`{{ eq .text "a,b" }}{{ eq .text "x" "a,b" }}{{ ne .text "x" }}{{ eq .missing .missing }}{{ ne (not .down) (not .up) }}`,
	`{{ define "one" }}<{{ . }}{{ $ }}>{{ end }}{{ include "one" .text }}{{ include "one" (list 1 2) | nindent 2 }}`,
	`{{/* a comment */}}{{ .text | quote | toString }}{{ toYaml .map | nindent 4 }}{{ toJson .list | fromJson }}`,
	`{{ .Files.Get "Chart.yaml" | fromYaml | toJson }}{{ ternary 1 2 .up }}{{ true }}{{ 1.5 }}{{ kindIs "map" .map }}`,
	`{{ hasKey .map "inner" }}{{ $m := set .words "z" 1 }}{{ $m }}{{ join "-" .list }}{{ sha256sum .text }}`,
	// These fail in both.
	`{{ .text.inner }}`, `{{ .missing.inner }}`, `{{ nindent "x" .text }}`, `{{ nindent 1 }}`, `{{ include "none" . }}`,
	`{{ eq .text 1 }}`, `{{ index .missing "a" }}`, `{{ index .list 9 }}`, `{{ unknown }}`, `{{ .text 1 }}`,
	`{{ fail "why" }}`, `{{ nil | default 1 }}`, `{{ if }}`, `{{ $undeclared }}`, `{{ range .number }}{{ end }}{{ range .text }}{{ end }}`,
}

// TestTemplatesAreThoseOfGo: a template has the output that package text/template gives it, and fails where that fails.
func TestTemplatesAreThoseOfGo(t *testing.T) {
	data := func() map[string]any {
		m := map[string]any{}
		if err := yaml.Unmarshal([]byte(`{text: "a,b", number: 3, float: 1.5, up: true, down: false, empty: "", zero: 0,
			list: [1, x, null], map: {inner: {deep: d}}, words: {b: 2, a: 1}}`), &m); err != nil {
			t.Fatal(err)
		}
		m["Files"] = map[string]any{"Get": readFile}
		return m
	}
	for _, text := range constructs {
		own, of := newTemplates(), template.New("").Option("missingkey=zero")
		var got, want strings.Builder
		err := own.parse("file", text)
		if err == nil {
			err = own.execute(&got, "file", data())
		}
		others := functions(own)
		maps.Copy(others, map[string]any{"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := of.ExecuteTemplate(&out, name, data)
			return out.String(), err
		}})
		of.Funcs(others)
		_, failure := of.New("file").Parse(text)
		if failure == nil {
			given := data()
			given["Files"] = getter{}
			failure = of.ExecuteTemplate(&want, "file", given)
		}
		if (err == nil) != (failure == nil) || err == nil && got.String() != want.String() {
			t.Errorf("%s\nis  %q, %v\nnot %q, %v", text, &got, err, &want, failure)
		}
	}
}

type getter struct{}

func (getter) Get(name string) (string, error) { return readFile(name) }
