package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Former endpoints stay published until all new members serve, for at most retainAfterFirst after the first of these
// serves, and for at most retainAtMost in total.
const (
	retainAfterFirst = 10 * time.Second
	retainAtMost     = 5 * time.Minute
)

// progress has the number of ready new members, of those that serve, and of retained endpoints.
type progress struct{ ready, serving, retained int }

func (p *Plan) retainProgress(r *table.Reader, key rowKey) progress {
	row, ok := p.State.Tables.RetainedEndpoints.Find(r, key.Mesh, key.Name)
	if !ok {
		return progress{}
	}
	ready, serving := p.State.Services.Successors(r, row)
	return progress{ready, serving, p.State.Services.RetainedCount(r, row)}
}

// retainEndpoints deletes a row of retained endpoints when its new members serve or its time is over.
func (p *Plan) retainEndpoints(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.RetainedEndpoints.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	at := p.progress.Get(r, rowKey{u.Mesh, u.Name})
	ends := at.retained == 0 || at.ready > 0 && at.serving == at.ready || r.Past(row.Spec.Since.Add(retainAtMost))
	if at.serving > 0 {
		updated := *row
		updated.Spec.FirstServed = cmp.Or(row.Spec.FirstServed, &kind.Time{Time: r.Now()})
		ends = ends || r.Past(updated.Spec.FirstServed.Add(retainAfterFirst))
		putIfDifferent(&w, 0, row, &updated)
	}
	if ends {
		return Writes{Do: []Write{{Delete: row}}}
	}
	return w
}

// retainedCondition returns a condition for each port of a service that still uses former endpoints.
func (p *Plan) retainedCondition(r *table.Reader, meshService *resource.Object[kind.MeshService]) []kind.Condition {
	var conditions []kind.Condition
	for _, port := range meshService.Spec.Ports {
		row, ok := p.State.Tables.RetainedEndpoints.Find(
			r,
			meshService.Mesh,
			service.RetainedEndpointsName(meshService.Name, port.Port),
		)
		if !ok {
			continue
		}
		conditions = append(conditions, kind.Condition{
			Type: "EndpointsRetained", Status: "True", Reason: "NoNewMemberServes",
			Message: fmt.Sprintf("port %d: no current member served at %s, so %d former ones stay until the current "+
				"ones do, until %s at the latest",
				port.Port, row.Spec.Since.UTC().Format(time.RFC3339), len(row.Spec.Endpoints),
				row.Spec.Since.Add(retainAtMost).UTC().Format(time.RFC3339)),
		})
	}
	return conditions
}
