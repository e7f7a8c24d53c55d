package push

import (
	"time"

	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ownLists keeps the endpoint lists of this zone's services derived, even where no proxy of this instance uses them. A
// list that becomes empty while its clients are at another instance, or have not reconnected after a restart, is
// retained for them. The lock of the table's writer guards it.
type ownLists struct {
	state    *graph.State
	followed map[resource.Key][]service.DestinationKey // by MeshService
}

func newOwnLists(g *graph.State) *ownLists {
	return &ownLists{g, map[resource.Key][]service.DestinationKey{}}
}

// follow follows the lists of the services that a commit changes. It is a [Follower].
func (l *ownLists) follow(put []resource.Any, removed []resource.Key, _ []*table.Changes, _ time.Time) {
	for _, o := range put {
		if service, ok := o.(*resource.Object[kind.MeshService]); ok {
			l.followListsOf(o.Key(), l.state.Services.ListsOf(service))
		}
	}
	for _, key := range removed {
		if key.Kind == kind.MeshServices.Name {
			l.followListsOf(key, nil)
		}
	}
}

func (l *ownLists) followListsOf(service resource.Key, lists []service.DestinationKey) {
	for _, key := range lists {
		l.state.Services.Endpoints.Pin(key)
	}
	for _, key := range l.followed[service] {
		l.state.Services.Endpoints.Unpin(key)
	}
	l.followed[service] = lists
	if len(lists) == 0 {
		delete(l.followed, service)
	}
}
