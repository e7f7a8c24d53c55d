package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weft/internal/store"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// TestMissingResourcesHaveHints: on Kubernetes a name ends with the namespace. The error of a name without it, or of
// the name of a Pod's owner, has the names that exist.
func TestMissingResourcesHaveHints(t *testing.T) {
	rows := newStore(t)
	w := newWorld(t, rows)
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	for _, name := range []string{"client-1", "client-2", "client-3", "client-4", "clients-1", "other"} {
		dp := kind.Dataplanes.Make("default", name+".demo", kind.Dataplane{})
		dp.Labels = map[string]string{kind.DisplayName: name, kind.NamespaceLabel: "demo"}
		body, err := resource.Body(dp)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rows.Create(t.Context(), store.Row{Key: dp.Key(), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	const hint = "does not exist; names on Kubernetes are NAME.NAMESPACE, such as "
	for path, want := range map[string]string{
		"dataplanes/client/_explain?to=b": hint + "client-1.demo, client-2.demo, client-3.demo",
		"dataplanes/other":                hint + "other.demo",
		"dataplanes/client/_policies":     hint + "client-1.demo",
		"dataplanes/gone/_explain?to=b":   "Dataplane default/gone does not exist\"",
	} {
		testwait.Until(t, "the table has the rows, and the error a hint", func() error {
			r := w.do("GET", "/meshes/default/"+path, "", nil)
			if body := text(r); r.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
				return fmt.Errorf("%s: %s %s, want %q", path, r.Status, body, want)
			}
			return nil
		})
	}
}
