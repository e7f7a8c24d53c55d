package xds

import (
	"fmt"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A listener of a proxy's own names a cluster of the group to which the proxy moves with the same commit. Whenever the
// stream looks for changes, it sees both or none. The commit wakes the followers of many other sets after it, so that
// the stream has the time to look.
func TestAStreamMovesTogetherWithTheCommit(t *testing.T) {
	r := newRoom(t)
	r.set.Commit([]*Resource{fake(Listener, "own", "0")}, nil)
	c := r.connect(t, "web")
	c.ack(c.expectResponse(""))
	c.say(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: Listener.URL()})
	c.ack(c.expectResponse("own@0"))
	stream := r.server.Streams()[0]
	others := make([]*ResourceSet, 2000)
	for i := range others {
		others[i] = r.catalog.NewResourceSet()
	}
	for i := 1; i <= 100; i++ {
		group, version := r.catalog.NewResourceSet(), fmt.Sprint(i)
		group.Commit([]*Resource{fake(Cluster, "c", version)}, nil)
		changes := []Change{{Set: r.set, Changed: []*Resource{fake(Listener, "own", version)}}}
		for _, other := range others {
			changes = append(changes, Change{Set: other, Changed: []*Resource{fake(Cluster, "c", version)}})
		}
		r.catalog.CommitAndMove([]Move{{stream, []*ResourceSet{r.set, group}}}, changes...)
		c.ack(c.expectResponse("c@" + version))
		c.ack(c.expectResponse("own@" + version))
	}
}
