package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// How long former endpoints stay published: until all new members serve, but at most so long after the
// first of them does, and so long in all.
const (
	holdAfterFirst = 10 * time.Second
	holdAtMost     = 5 * time.Minute
)

// progress is what the end of a hold depends on.
type progress struct{ ready, serving, held int }

func (p *Plan) holdProgress(r *table.Reader, key rowKey) progress {
	row, ok := p.State.RetainedEndpoints.Find(r, key.Mesh, key.Name)
	if !ok {
		return progress{}
	}
	ready, serving := p.State.Successors(r, row)
	return progress{ready, serving, p.State.RetainedCount(r, row)}
}

// hold ends what is held when its time has come.
func (p *Plan) hold(r *table.Reader, u Unit) (w Writes) {
	row, ok := p.State.RetainedEndpoints.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	at := p.progress.Get(r, rowKey{u.Mesh, u.Name})
	ends := at.held == 0 || at.ready > 0 && at.serving == at.ready || r.Past(row.Spec.Since.Add(holdAtMost))
	if at.serving > 0 {
		updated := *row
		updated.Spec.FirstServed = cmp.Or(row.Spec.FirstServed, &kind.Time{Time: r.Now()})
		ends = ends || r.Past(updated.Spec.FirstServed.Add(holdAfterFirst))
		put(&w, 0, row, &updated)
	}
	if ends {
		return Writes{Do: []Write{{Delete: row}}}
	}
	return w
}

// heldCondition tells readers of a service that former servers are still in use.
func (p *Plan) heldCondition(r *table.Reader, service *resource.Object[kind.MeshService]) []kind.Condition {
	var conditions []kind.Condition
	for _, port := range service.Spec.Ports {
		row, ok := p.State.RetainedEndpoints.Find(r, service.Mesh, graph.RetainedEndpointsName(service.Name, port.Port))
		if !ok {
			continue
		}
		conditions = append(conditions, kind.Condition{
			Type: "EndpointsRetained", Status: "True", Reason: "NoNewMemberServes",
			Message: fmt.Sprintf("port %d: no current member served at %s, so %d former ones stay until the current ones do, until %s at the latest",
				port.Port, row.Spec.Since.UTC().Format(time.RFC3339), len(row.Spec.Endpoints), row.Spec.Since.Add(holdAtMost).UTC().Format(time.RFC3339)),
		})
	}
	return conditions
}
