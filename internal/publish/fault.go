package publish

import (
	"fmt"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
)

// failed hears of every derived value that can't be made. That is a bug of ours; what was made last stays
// in use, and everything else goes on.
func (h *Hub) failed(f table.Failure) {
	if f.Panic != nil {
		h.log.Error("a derived value can't be made, and what was made of it last stays; this is a bug in weft",
			"table", f.Table, "key", f.Key, "kept", f.Kept, "panic", f.Panic, "stack", string(f.Stack))
	}
	mesh, cause, ok := h.causeOf(f.Key)
	if !f.Kept || !ok {
		return
	}
	fault := graph.Fault{Value: fmt.Sprintf("%s of %v", f.Table, f.Key), Mesh: mesh, Cause: cause}
	if f.Panic != nil {
		fault.Panic = fmt.Sprint(f.Panic)
	}
	h.faults = append(h.faults, fault)
}

// causeOf is the resource that the derived value of a key is made of, where its status can tell.
func (h *Hub) causeOf(key any) (mesh string, cause kind.Cause, ok bool) {
	destination := func(key graph.DestinationKey) (string, kind.Cause, bool) {
		return key.Mesh, kind.Cause{Kind: key.Kind.String(), Name: h.state.Row(key).Name}, true
	}
	switch key := key.(type) {
	case graph.ServiceKey:
		return key.Mesh, kind.Cause{Kind: kind.MeshServices.Name, Name: key.Name}, true
	case graph.DestinationKey:
		return destination(key)
	case outboundKey:
		return destination(key.destination)
	}
	return "", kind.Cause{}, false
}

// noteFaults takes the faults that came and went into the table, where those who write statuses find them.
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
