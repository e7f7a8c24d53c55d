package push

import (
	"fmt"
	"log/slog"

	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// faults collects failures of derived values until the next commit of the hub notes them in the table, from which the
// writers of statuses read them. The lock of the table's writer guards it.
type faults struct {
	state *graph.State
	log   *slog.Logger
	found []state.Fault // that appeared, or went (without a panic), since they were last noted
}

// failed records a derived value whose computation failed. That is a bug of weft. The last good value stays in use.
func (f *faults) failed(failure table.Failure) {
	if failure.Panic != nil {
		f.log.Error("a derived value failed and its last good value stays in use; this is a bug in weft",
			"table", failure.Table, "key", failure.Key, "kept", failure.Kept, "panic", failure.Panic,
			"stack", string(failure.Stack))
	}
	mesh, cause, ok := f.causeOf(failure.Key)
	if !failure.Kept || !ok {
		return
	}
	fault := state.Fault{Value: fmt.Sprintf("%s of %v", failure.Table, failure.Key), Mesh: mesh, Cause: cause}
	if failure.Panic != nil {
		fault.Panic = fmt.Sprint(failure.Panic)
	}
	f.found = append(f.found, fault)
}

// causeOf returns the resource from which the derived value of a key is generated, where the status of the resource can
// report a failure.
func (f *faults) causeOf(key any) (mesh string, cause kind.Cause, ok bool) {
	destination := func(key service.DestinationKey) (string, kind.Cause, bool) {
		return key.Mesh, kind.Cause{Kind: key.Kind.String(), Name: f.state.Services.Row(key).Name}, true
	}
	switch key := key.(type) {
	case state.ServiceKey:
		return key.Mesh, kind.Cause{Kind: kind.MeshServices.Name, Name: key.Name}, true
	case service.DestinationKey:
		return destination(key)
	case service.List:
		return destination(key.DestinationKey)
	case clustersKey:
		return destination(key.destination)
	case outboundKey:
		return destination(key.destination)
	}
	return "", kind.Cause{}, false
}

// note commits the faults that appeared and went to the table.
func (f *faults) note() []*table.Changes {
	if len(f.found) == 0 {
		return nil
	}
	found := f.found
	f.found = nil
	return []*table.Changes{f.state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, fault := range found {
			if fault.Panic == "" {
				f.state.Tables.Faults.Delete(tx, fault.Value)
			} else {
				f.state.Tables.Faults.Put(tx, fault)
			}
		}
	})}
}
