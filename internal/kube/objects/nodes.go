package objects

import (
	"context"
	"net/netip"
	"sync/atomic"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/table"
)

// Nodes are the addresses of the Nodes, for a replica that does not lead. Agents connect to every replica, and the
// [Tables] have rows at the leader alone.
type Nodes struct {
	db        *table.DB
	nodes     table.Input[*convert.Node]
	byAddress table.Index[*convert.Node]
	synced    atomic.Bool
}

// NewNodes returns the addresses of the Nodes, none of which is known before Run.
func NewNodes() *Nodes {
	db := table.New()
	n := &Nodes{db: db, nodes: table.NewInput(db, func(o *convert.Node) string { return o.Name })}
	n.byAddress = table.NewIndex(n.nodes, func(o *convert.Node) (keys []string) {
		for _, address := range o.Addresses {
			keys = append(keys, address.String())
		}
		return keys
	})
	return n
}

// Run follows the Nodes until ctx ends.
func (n *Nodes) Run(ctx context.Context, client *api.Client, outage *api.Outage) {
	f := &Follower{API: client, Outage: outage, Commit: func(change func(*table.Tx)) { n.db.Commit(change) }}
	nodes := newSource(n.nodes, "/api/v1/nodes", "", convert.DecodeNode(nil))
	f.run(ctx, []*source{nodes}, func(_ *table.Tx, synced bool) { n.synced.Store(synced) })
}

// HasAddress reports whether a Node has an address. known is false before the Nodes were read.
func (n *Nodes) HasAddress(address netip.Addr) (has, known bool) {
	if !n.synced.Load() {
		return false, false
	}
	return len(n.byAddress.List(table.Eval(n.db.Snapshot()), address.String())) > 0, true
}
