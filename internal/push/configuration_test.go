package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// TestConfigurations goes from resources to Envoy resources. A scenario has the rows of a zone "east": resources as
// users write them and, with `spec`, rows that only the control plane writes. The derived sections have the derived
// values of the proxies in "proxies", and the resources that each proxy is sent.
func TestConfigurations(t *testing.T) {
	golden.Run(t, "testdata/configurations/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		hub := NewHub(graph.NewState("east"), xds.NewCatalog(), slog.New(slog.DiscardHandler))
		var rows []resource.Any
		for _, document := range resource.SplitYAML([]byte(golden.Section(scenario, "resources.yaml"))) {
			o := row(t, document.Text)
			if meta := o.Envelope(); meta.Label(kind.DisplayName) != "" { // received from its zone
				meta.Name = kind.SyncedName(kind.ByName(o.Key().Kind).Describe(), meta.Mesh,
					kind.OwnerName(kind.ByName(o.Key().Kind).Describe(), meta), kind.OwnerOf(meta))
			}
			rows = append(rows, o)
		}
		put(hub, rows...)
		var keys []state.ProxyKey
		for name := range strings.FieldsSeq(golden.Section(scenario, "proxies")) {
			keys = append(keys, watched(t, hub, name))
		}
		golden.Set(scenario, "meaning.yaml", meaning(t, hub, keys))
		for _, key := range keys {
			golden.Set(scenario, "envoy of "+key.Name+".yaml", configuration(t, hub, key))
		}
	})
}

// row reads a resource as users write it, with its defaults, or a hidden row.
func row(t *testing.T, document []byte) resource.Any {
	t.Helper()
	var hidden struct {
		Type, Mesh, Name string
		Labels           map[string]string
		Spec             json.RawMessage
	}
	if err := yaml.Unmarshal(document, &hidden); err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	d := kind.ByName(hidden.Type)
	if d != nil && (d.Describe().Hidden || d.Describe().ReadOnly) {
		o := d.New()
		o.Envelope().Mesh, o.Envelope().Name, o.Envelope().Labels = hidden.Mesh, hidden.Name, hidden.Labels
		if err := json.Unmarshal(hidden.Spec, resource.SpecOf(o)); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		return o
	}
	o, err := resource.Parse(document, kind.ByName)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if problems := d.Prepare(o); len(problems) > 0 {
		t.Fatalf("%s: %v", o.Key(), problems)
	}
	return o
}

// meaning returns the derived values that the configuration is made of.
func meaning(t *testing.T, hub *Hub, keys []state.ProxyKey) string {
	t.Helper()
	r := hub.reader()
	var out strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&out, "--- # proxy %s\n%s", key, values(t, hub.state.Proxies.Proxy.Get(r, key)))
	}
	services := slices.SortedFunc(
		slices.Values(hub.state.Services.Destinations.Get(r, mesh)),
		service.CompareDestinations,
	)
	for _, service := range services {
		for _, port := range hub.state.Services.Ports.Get(r, service) {
			key := service.WithPort(port)
			fmt.Fprintf(&out, "--- # destination %s\n%s", key, values(t, hub.state.Services.Destination.Get(r, key)))
			fmt.Fprintf(&out, "--- # endpoints of %s\n%s", key, values(t, hub.state.Services.EndpointsOf(r, key)))
		}
	}
	return out.String()
}

// values is a derived value in YAML, without its empty fields.
func values(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	var fields any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err == nil {
		text, err = yaml.Marshal(withoutEmpty(fields))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if value[name] = withoutEmpty(field); value[name] == nil {
				delete(value, name)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		if len(value) == 0 {
			return nil
		}
		for i := range value {
			value[i] = withoutEmpty(value[i])
		}
	case string:
		if value == "" {
			return nil
		}
	case bool:
		if !value {
			return nil
		}
	case float64:
		if value == 0 {
			return nil
		}
	}
	return value
}

// configuration returns what a proxy is sent, in its order.
func configuration(t *testing.T, hub *Hub, key state.ProxyKey) string {
	t.Helper()
	resources, ok := hub.Inspector.Config(key)
	if !ok {
		t.Fatalf("the proxy %s has no configuration", key)
	}
	var out bytes.Buffer
	for _, r := range resources {
		message, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(message)
		if err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", r.Type, r.Name, err)
		}
		fmt.Fprintf(&out, "--- # %s %s\n%s", r.Type, r.Name, text)
	}
	return out.String()
}
