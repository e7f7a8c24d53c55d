package weft_test

import (
	"strings"
	"testing"
)

// TestEnvoyImportNames: a package of Envoy's API has the same name in every file, so that a search for corev3.Address
// finds all of its uses. The name is the package's own, without underscores; a package whose name another one has gets
// a longer one. Each name ends with the version of the API.
func TestEnvoyImportNames(t *testing.T) {
	type use struct{ text, file string }
	names, paths := map[string]use{}, map[string]use{} // by path, by name
	for file, source := range goFiles(t) {
		for _, imported := range source.tree.Imports {
			path, name := strings.Trim(imported.Path.Value, `"`), ""
			if !strings.HasPrefix(path, "github.com/envoyproxy/go-control-plane/") && !strings.HasPrefix(path, "github.com/cncf/xds/") {
				continue
			}
			if imported.Name != nil {
				name = imported.Name.Name
			}
			if !strings.HasSuffix(name, "v3") || strings.Contains(name, "_") {
				t.Errorf("%s imports %s as %q, want the package's name, without underscores, with the suffix v3", file, path, name)
			}
			if first, ok := names[path]; ok && first.text != name {
				t.Errorf("%s imports %s as %q, %s as %q", file, path, name, first.file, first.text)
			}
			if first, ok := paths[name]; ok && first.text != path {
				t.Errorf("%s imports %s as %q, the name of %s in %s", file, path, name, first.text, first.file)
			}
			names[path], paths[name] = use{name, file}, use{path, file}
		}
	}
	if len(names) == 0 {
		t.Error("no file imports a package of Envoy's API")
	}
}
