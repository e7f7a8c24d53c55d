package policy

import (
	"cmp"
	"encoding/json"
	"fmt"

	"weft/internal/interned"
)

// Confs are the effective confs of some traffic, by kind of policies. Equal confs are equal values, of the size of a
// pointer, whichever policies they are from. The zero value has none.
type Confs struct {
	json interned.Value[map[string]any]
}

// ConfsOf returns the confs, which are pointers to structs or lists, by kind.
func ConfsOf(byKind map[string]any) Confs {
	if len(byKind) == 0 {
		return Confs{}
	}
	return Confs{interned.Make(byKind)}
}

// String returns the confs as JSON, such as {"MeshTimeout":{"idleTimeout":"5s"}}.
func (c Confs) String() string { return cmp.Or(c.json.String(), "{}") }

// MarshalJSON implements json.Marshaler.
func (c Confs) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Confs) UnmarshalJSON(text []byte) error {
	var byKind map[string]any
	if err := json.Unmarshal(text, &byKind); err != nil {
		return err
	}
	*c = ConfsOf(byKind)
	return nil
}

// Read sets into, a pointer to a struct whose fields have the names of kinds, to the confs.
func (c Confs) Read(into any) {
	if c == (Confs{}) {
		return
	}
	if err := json.Unmarshal([]byte(c.String()), into); err != nil {
		panic(fmt.Sprintf("policy: a conf cannot be read: %v", err)) // it was written from the same types
	}
}
