package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADataplaneFileIsATemplate(t *testing.T) {
	const text = "type: Dataplane\nmesh: {{mesh}}\nname: {{ name }}-{{ number }}\n" +
		"networking: {address: {{ address }}, inbound: [{port: {{ port }}, tags: {kuma.io/service: web}}]}\n"
	all := map[string]string{"mesh": "shop", "name": "web", "number": "1", "address": "10.0.0.1", "port": "8080"}
	for name, test := range map[string]struct {
		text  string
		set   map[string]string
		wants []string // of the error; none: no error
	}{
		"whole": {text: text, set: all},
		"unused variable": {set: all,
			text: "type: Dataplane\nmesh: shop\nname: web-1\n" + strings.Split(text, "\n")[3]},
		"without a value": {text: text, set: map[string]string{"mesh": "shop", "name": "web", "number": "1"},
			wants: []string{
				"{{ address }} has no value; write --dataplane-var address=VALUE", "{{ port }} has no value"}},
		"a further line": {text: text, set: map[string]string{"name": "web\nmesh: other"},
			wants: []string{"--dataplane-var name: the value has a line break"}},
		"a section": {text: "name: {{#name}}x{{/name}}", wants: []string{`has "{{#", and a template has names only`}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "dataplane.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			document, dataplane, err := readDataplane(file, test.set, DataplaneProxy)
			if len(test.wants) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if dataplane.Mesh != "shop" || dataplane.Name != "web-1" || strings.Contains(string(document), "{{") {
					t.Errorf("Dataplane %s of %s\n%s", dataplane.Name, dataplane.Mesh, document)
				}
				return
			}
			for _, want := range test.wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}
