package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/internal/kube/crd"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// readStatus is a status as users read it.
type readStatus map[string]json.RawMessage

// conditions returns the type, the status and the reason of each condition, sorted.
func (s readStatus) conditions(t *testing.T) []string {
	t.Helper()
	var conditions []kind.Condition
	if raw := s["conditions"]; raw != nil {
		if err := json.Unmarshal(raw, &conditions); err != nil {
			t.Fatal(err)
		}
	}
	var texts []string
	for _, c := range conditions {
		texts = append(texts, fmt.Sprintf("%s=%s:%s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(texts)
	return texts
}

// countsOf are the fields of statuses that are computed on reading alone. (ADR 62, ADR 126)
var countsOf = []string{"applied", "warnings"}

// TestObjectsHaveTheirStatus: the status of the object of each kind has the conditions, and all fields but counts, that
// the REST API shows.
func TestObjectsHaveTheirStatus(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	p := servertest.Start(t, c.options(nil))
	var examples []resource.Any
	for _, d := range kind.All() {
		info := d.Describe()
		if kind.StatusKind(info.Name) == nil || info.Scope != resource.Mesh {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../../examples/kinds", strings.ToLower(info.Name)+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		example, err := kind.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		example.Object.Envelope().Name += "." + c.namespace
		if _, err := p.Admin.Put(t.Context(), example.Object, d); err != nil {
			t.Fatal(err)
		}
		examples = append(examples, example.Object)
	}
	for _, o := range examples {
		info := kind.ByName(o.Key().Kind).Describe()
		t.Run(info.Name, func(t *testing.T) {
			name := strings.TrimSuffix(o.Key().Name, "."+c.namespace)
			testwait.Until(t, "the object has the status", func() error {
				var shown struct{ Status readStatus }
				text := read(t, p, "/meshes/default/"+info.Plural+"/"+o.Key().Name)
				if err := json.Unmarshal([]byte(text), &shown); err != nil {
					return err
				}
				var object struct{ Status readStatus }
				c.read(t, fmt.Sprintf("/apis/kuma.io/v1alpha1/namespaces/%s/%s/%s", c.namespace, crd.Plural(info),
					name), &object)
				if got, want := object.Status.conditions(t), shown.Status.conditions(t); !slices.Equal(got, want) {
					return fmt.Errorf("the object has the conditions %q, and REST shows %q", got, want)
				}
				for _, field := range slices.Sorted(maps.Keys(shown.Status)) {
					if _, has := object.Status[field]; !has && !slices.Contains(countsOf, field) {
						return fmt.Errorf("the status of the object lacks %s, which REST shows", field)
					}
				}
				if _, policy := kind.ByName(info.Name).(kind.Policy); policy && len(object.Status.conditions(t)) != 3 {
					return fmt.Errorf("a policy has the conditions %q, want Accepted, ResolvedRefs and Applied",
						object.Status.conditions(t))
				}
				return nil
			})
		})
	}
}
