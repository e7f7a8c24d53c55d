package push

import (
	"context"

	"weft/internal/table"
	"weft/resource"
)

// LookedUp waits until every host name in rows has been looked up and no former ingress is dialed in its place, or ctx
// ends. It returns the rows of the names.
func (h *Hub) LookedUp(ctx context.Context, rows []resource.Key) (names []resource.Key) {
	_, _ = h.await(ctx, func(r *table.Reader) (all bool) { // the caller goes on without the names that take too long
		names, all = h.state.LookedUp(r, rows)
		return all
	})
	return names
}
