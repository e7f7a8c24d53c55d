// Package install renders the objects of weft on a Kubernetes cluster: the Helm chart, as helm itself does.
//
// The templates of the chart (package deploy) are the only source of the objects, and the list of values that of their
// values.
// Rendering is a function of its options: nothing is random, and no cluster is read.
package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"weft/deploy"
	"weft/internal/kube/crd"
)

// SystemNamespace is the default of the system namespace.
const SystemNamespace = "kuma-system"

// Options are what is rendered.
type Options struct {
	Namespace string         // the system namespace
	Values    map[string]any // those that differ from the defaults, as [ReadValues] reads them
	CRDs      bool           // with the definitions, before the other objects
}

// Render returns the objects, as `helm template` prints them. The error names each invalid value.
func Render(o Options) ([]byte, error) {
	if err := check(o.Values); err != nil {
		return nil, err
	}
	documents, err := execute(o)
	if err != nil {
		return nil, err
	}
	var definitions []document
	if o.CRDs {
		for _, d := range crd.All() {
			text, err := yaml.Marshal(d)
			if err != nil {
				return nil, err
			}
			definitions = append(definitions, document{"weft/crds/" + d.Metadata.Name + ".yaml", string(text), ""})
		}
		slices.SortFunc(definitions, func(a, b document) int { return strings.Compare(a.source, b.source) })
	}
	var out bytes.Buffer
	for _, d := range slices.Concat(definitions, documents) {
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", d.source, d.text)
	}
	return append(bytes.TrimSpace(out.Bytes()), '\n'), nil
}

// document is one object.
type document struct{ source, text, kind string }

// installOrder is the order in which helm installs kinds. Other kinds come last.
var installOrder = []string{"Namespace", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ConfigMap",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service", "DaemonSet", "Deployment",
	"HorizontalPodAutoscaler", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

var separator = regexp.MustCompile(`(?m)^---[ \t]*`)

// notes is the template of what helm prints after an installation, which is no object.
const notes = "/NOTES.txt"

// execute executes the templates, and returns their objects in helm's order.
func execute(o Options) ([]document, error) {
	data, err := contextOf(o)
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(deploy.Chart, "chart/templates/*")
	if err != nil {
		return nil, err
	}
	all := newTemplates()
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, notes) })
	for _, file := range files {
		text, err := deploy.Chart.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := all.parse(file, string(text)); err != nil {
			return nil, err
		}
	}
	var documents []document
	for _, file := range files {
		var out strings.Builder
		if err := all.execute(&out, file, data); err != nil {
			var failed failure
			if errors.As(err, &failed) {
				return nil, failed
			}
			return nil, err
		}
		for _, text := range separator.Split(strings.ReplaceAll(out.String(), noValue, ""), -1) {
			if text = strings.TrimLeft(text, " \t\r\n"); text == "" || strings.HasSuffix(file, ".tpl") {
				continue
			}
			var head struct{ Kind string }
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			documents = append(documents, document{"weft/" + strings.TrimPrefix(file, "chart/"), text, head.Kind})
		}
	}
	place := func(d document) int {
		if i := slices.Index(installOrder, d.kind); i >= 0 {
			return i
		}
		return len(installOrder)
	}
	slices.SortStableFunc(documents, func(a, b document) int { return place(a) - place(b) })
	return documents, nil
}

// contextOf returns what the templates read.
func contextOf(o Options) (map[string]any, error) {
	var chart struct{ Name, Version, AppVersion string }
	text, err := deploy.Chart.ReadFile("chart/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil {
		return nil, err
	}
	defaults := map[string]any{}
	if text, err = deploy.Chart.ReadFile("chart/values.yaml"); err == nil {
		err = yaml.Unmarshal(text, &defaults)
	}
	override(defaults, o.Values)
	return map[string]any{
		"Values": defaults, "Files": map[string]any{"Get": readFile},
		"Chart":   map[string]any{"Name": chart.Name, "Version": chart.Version, "AppVersion": chart.AppVersion},
		"Release": map[string]any{"Namespace": o.Namespace},
	}, err
}

// override sets the values of a mapping to those of another one. Null removes a value.
func override(values, with map[string]any) {
	for key, v := range with {
		inner, isMap := v.(map[string]any)
		before, wasMap := values[key].(map[string]any)
		switch {
		case isMap && wasMap:
			override(before, inner)
		case v == nil:
			delete(values, key)
		default:
			values[key] = v
		}
	}
}

// readFile returns the text of a file of the chart.
func readFile(name string) (string, error) {
	text, err := deploy.Chart.ReadFile(path.Join("chart", name))
	return string(text), err
}

// failure is what a template rejects.
type failure struct{ text string }

func (f failure) Error() string { return f.text }

// functions are those functions of helm that the templates use, with the meaning that they have there.
func functions(all *templates) map[string]any {
	indent := func(n int, text string) string {
		pad := strings.Repeat(" ", n)
		return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
	}
	return map[string]any{
		"default": func(fallback, given any) any {
			if !isTrue(given) {
				return fallback
			}
			return given
		},
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				m[textOf(pairs[i])] = pairs[i+1]
			}
			return m
		},
		"fail": func(text string) (string, error) { return "", failure{text} },
		"fromJson": func(text string) (m map[string]any, err error) {
			err = json.Unmarshal([]byte(text), &m)
			return m, err
		},
		"fromYaml": func(text string) (m map[string]any, err error) {
			err = yaml.Unmarshal([]byte(text), &m)
			return m, err
		},
		"hasKey": func(m map[string]any, key string) bool { _, ok := m[key]; return ok },
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := all.execute(&out, name, data)
			return out.String(), err
		},
		"join": func(separator string, items []any) string {
			var texts []string
			for _, item := range items {
				texts = append(texts, textOf(item))
			}
			return strings.Join(texts, separator)
		},
		"kindIs":  func(kind string, v any) bool { return reflect.ValueOf(v).Kind().String() == kind },
		"list":    func(items ...any) []any { return items },
		"nindent": func(n int, text string) string { return "\n" + indent(n, text) },
		"quote":   func(v any) string { return fmt.Sprintf("%q", textOf(v)) },
		"set":     func(m map[string]any, key string, v any) map[string]any { m[key] = v; return m },
		"sha256sum": func(text string) string {
			sum := sha256.Sum256([]byte(text))
			return hex.EncodeToString(sum[:])
		},
		"splitList": func(separator, text string) []string { return strings.Split(text, separator) },
		"ternary": func(yes, no any, condition bool) any {
			if condition {
				return yes
			}
			return no
		},
		"toJson": func(v any) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		"toString": textOf,
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	}
}

func textOf(v any) string { return fmt.Sprint(v) }
