package push

import (
	"fmt"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// failed records a derived value whose computation failed. That is a bug of weft. The last good value stays in use.
func (h *Hub) failed(f table.Failure) {
	if f.Panic != nil {
		h.log.Error("a derived value failed and its last good value stays in use; this is a bug in weft",
			"table", f.Table, "key", f.Key, "kept", f.Kept, "panic", f.Panic, "stack", string(f.Stack))
	}
	mesh, cause, ok := h.causeOf(f.Key)
	if !f.Kept || !ok {
		return
	}
	fault := state.Fault{Value: fmt.Sprintf("%s of %v", f.Table, f.Key), Mesh: mesh, Cause: cause}
	if f.Panic != nil {
		fault.Panic = fmt.Sprint(f.Panic)
	}
	h.faults = append(h.faults, fault)
}

// causeOf returns the resource from which the derived value of a key is generated, where the status of the resource can
// report a failure.
func (h *Hub) causeOf(key any) (mesh string, cause kind.Cause, ok bool) {
	destination := func(key graph.DestinationKey) (string, kind.Cause, bool) {
		return key.Mesh, kind.Cause{Kind: key.Kind.String(), Name: h.state.Row(key).Name}, true
	}
	switch key := key.(type) {
	case state.ServiceKey:
		return key.Mesh, kind.Cause{Kind: kind.MeshServices.Name, Name: key.Name}, true
	case graph.DestinationKey:
		return destination(key)
	case clustersKey:
		return destination(key.destination)
	case outboundKey:
		return destination(key.destination)
	}
	return "", kind.Cause{}, false
}

// noteFaults commits the faults that appeared and went to the table, from which the writers of statuses read them.
func (h *Hub) noteFaults() []*table.Changes {
	if len(h.faults) == 0 {
		return nil
	}
	faults := h.faults
	h.faults = nil
	return []*table.Changes{h.state.DB.Commit(func(tx *table.Tx) {
		for _, f := range faults {
			if f.Panic == "" {
				h.state.Faults.Delete(tx, f.Value)
			} else {
				h.state.Faults.Put(tx, f)
			}
		}
	})}
}
