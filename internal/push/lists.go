package push

import (
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/kind"
	"weft/resource"
)

// ownLists keeps the endpoint lists of this zone's services derived, even where no proxy of this instance uses them. A
// list that becomes empty while its clients are at another instance, or have not reconnected after a restart, is
// retained for them. The lock of the hub guards it.
type ownLists struct {
	state    *graph.State
	followed map[resource.Key][]graph.DestinationKey // by MeshService
}

// follow follows the lists of the services that a batch changes.
func (l *ownLists) follow(b mirror.Batch) {
	for _, o := range b.Put {
		if service, ok := o.(*resource.Object[kind.MeshService]); ok {
			l.followListsOf(o.Key(), l.state.ListsOf(service))
		}
	}
	for _, key := range b.Removed {
		if key.Kind == kind.MeshServices.Name {
			l.followListsOf(key, nil)
		}
	}
}

func (l *ownLists) followListsOf(service resource.Key, lists []graph.DestinationKey) {
	for _, key := range lists {
		l.state.Endpoints.Pin(key)
	}
	for _, key := range l.followed[service] {
		l.state.Endpoints.Unpin(key)
	}
	l.followed[service] = lists
	if len(lists) == 0 {
		delete(l.followed, service)
	}
}
