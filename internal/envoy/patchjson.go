package envoy

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/kind"
)

// jsonGuard finds in the operations of a JSON patch, whose messages are not known before they are applied, types of
// extensions and what leads to the machine of a proxy.
type jsonGuard struct {
	cut   []string
	types []protoreflect.FullName
}

func examinedJSON(operations []kind.JSONPatch) *jsonGuard {
	g := &jsonGuard{}
	for i := range operations {
		tokens := strings.Split(operations[i].Path, "/")
		for j, token := range tokens {
			tokens[j] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			g.key(tokens[j], operations[i].Value.String())
		}
		var value any
		if json.Unmarshal([]byte(operations[i].Value.String()), &value) == nil {
			g.value(tokens[len(tokens)-1], value)
		}
	}
	return g
}

func (g *jsonGuard) key(key, value string) {
	if machineKey(key) {
		g.cut = append(g.cut, fmt.Sprintf("%s: %.200s", key, value))
	}
}

// value examines a value by its key.
func (g *jsonGuard) value(key string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			g.key(name, fmt.Sprint(inner))
			g.value(name, inner)
		}
	case []any:
		for _, inner := range value {
			g.value(key, inner)
		}
	case string:
		if of := plainKey(key); of == "@type" || of == "typeurl" {
			g.types = append(g.types, protoreflect.FullName(value[strings.LastIndex(value, "/")+1:]))
		}
		for _, reader := range readers {
			if strings.Contains(value, reader) {
				g.cut = append(g.cut, fmt.Sprintf("%s: %.200q", key, value))
			}
		}
	}
}
