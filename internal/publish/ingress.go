package publish

import (
	"cmp"
	"slices"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
)

// ingress is what the attached zone ingresses of a mesh share.
type ingress struct {
	feed    *xds.Feed
	shared  *Ingress
	members int
}

func (i *ingress) has(p graph.Passage) bool {
	_, found := slices.BinarySearchFunc(i.shared.Passages, p, graph.ComparePassages)
	return found
}

// passes says whether a server name leads anywhere.
func (i *ingress) passes(sni string) bool {
	at, _ := slices.BinarySearchFunc(i.shared.Passages, graph.Passage{SNI: sni}, graph.ComparePassages)
	return at < len(i.shared.Passages) && i.shared.Passages[at].SNI == sni
}

// publishPassages moves what differs for zone ingresses into their feeds.
func (h *Hub) publishPassages(e edits, changes *table.Changes) {
	for mesh, shared := range h.config.ingress.Changed(changes) {
		h.updateIngress(e, h.ingresses[mesh], shared)
	}
	for passage, assignment := range h.config.passageAssignment.Changed(changes) {
		if i := h.ingresses[passage.Destination.Mesh]; i != nil && i.has(passage) {
			e.add(i.feed, []*xds.Resource{assignment}, nil)
		}
	}
}

func (h *Hub) updateIngress(e edits, i *ingress, shared *Ingress) {
	changed, removed := difference(i.shared.Resources, shared.Resources)
	e.add(i.feed, changed, removed)
	before := *i
	i.shared = shared
	for _, p := range before.shared.Passages {
		if !i.has(p) {
			h.config.passageAssignment.Unpin(p)
		}
		if !i.passes(p.SNI) {
			e.add(i.feed, nil, []xds.Key{{Type: xds.Endpoint, Name: p.SNI}})
		}
	}
	for _, p := range shared.Passages {
		if before.has(p) {
			continue
		}
		if a := h.config.passageAssignment.Pin(p); a != nil { // nil: it could not be made yet
			e.add(i.feed, []*xds.Resource{a}, nil)
		}
	}
}

func (h *Hub) joinIngress(e edits, mesh string) {
	i := h.ingresses[mesh]
	if i == nil {
		i = &ingress{feed: h.catalog.NewFeed(), shared: &Ingress{}}
		h.ingresses[mesh] = i
		h.updateIngress(e, i, cmp.Or(h.config.ingress.Pin(mesh), i.shared)) // nil: it could not be made yet
	}
	i.members++
}

func (h *Hub) leaveIngress(mesh string) {
	i := h.ingresses[mesh]
	if i.members--; i.members > 0 {
		return
	}
	delete(h.ingresses, mesh)
	for _, p := range i.shared.Passages {
		h.config.passageAssignment.Unpin(p)
	}
	h.config.ingress.Unpin(mesh)
}
