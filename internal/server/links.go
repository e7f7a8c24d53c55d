package server

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/join"
	"weft/internal/metrics"
	"weft/kind"
)

// linksOf returns the state of the sync of each kind with a zone, on a global control plane.
func linksOf(global *join.Global) func(zone string) map[string]inspect.KindLink {
	return func(zone string) map[string]inspect.KindLink {
		states, _ := global.Live(zone)
		links := map[string]inspect.KindLink{}
		for name, s := range states {
			links[name] = kindLink(true, s)
		}
		return links
	}
}

// linkOf returns the state of a zone's connection to its global control plane. It is nil on a replica that does not
// lead, since the leader has the connection. The stream of Meshes stands for all streams: they start and end together.
func linkOf(zone *join.Zone, leads func() bool) func() *inspect.GlobalLink {
	return func() *inspect.GlobalLink {
		if !leads() {
			return nil
		}
		links := zone.Links()
		main := links[kind.Meshes.Name]
		g := &inspect.GlobalLink{
			Connected: main.Connected, Since: kind.Time{Time: main.Since}, Problem: main.Problem, Instance: main.Global,
			Version:  main.Release,
			Rejected: []kind.RejectedItem{}, Kinds: map[string]inspect.KindLink{},
		}
		for name, link := range links {
			g.Kinds[name] = kindOf(&link)
			for _, r := range slices.Concat(link.Rejected, link.Rejects) {
				g.Rejected = append(g.Rejected, kind.RejectedItem{Kind: name, Mesh: r.Key.Mesh, Name: r.Key.Name,
					Reason: r.Reason})
			}
		}
		slices.SortFunc(g.Rejected, func(a, b kind.RejectedItem) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
		})
		g.Lag, _ = inspect.LagOf(g.Kinds)
		return g
	}
}

// kindOf returns the state of a kind in a zone, which knows why it is not connected.
func kindOf(link *join.Link) inspect.KindLink {
	is := kindLink(link.Connected, link.StreamState)
	if !link.Connected && !link.Since.IsZero() {
		is.Since, is.Problem = &kind.Time{Time: link.Since}, link.Problem
	}
	return is
}

func kindLink(connected bool, s join.StreamState) inspect.KindLink {
	link := inspect.KindLink{
		Connected: connected,
		Stored:    s.Sent.Applied, Acked: s.Sent.Acked.Most, Lagging: s.Sent.Acked.Lagging, Current: s.Sent.Current,
		Lag:      kind.Duration(s.Sent.Lag),
		Received: s.Received.Seq, Rejected: len(s.Rejected) + len(s.Rejects),
		ItemsSent: s.ItemsSent, ItemsReceived: s.ItemsReceived,
	}
	if !s.LastItem.IsZero() {
		link.LastItem = &kind.Time{Time: s.LastItem}
	}
	return link
}

// globalLinkMetrics are the connections of all zones to a global control plane.
func globalLinkMetrics(state *graph.State, links func(zone string) map[string]inspect.KindLink) func() []metrics.Link {
	return func() []metrics.Link {
		var all []metrics.Link
		for o := range state.Tables.ResourcesAfter(state.Tables.DB.Snapshot(), kind.Zones.Name, "", "") {
			kinds := links(o.Envelope().Name)
			lag, _ := inspect.LagOf(kinds)
			link := metrics.Link{Zone: o.Envelope().Name, Connected: len(kinds) > 0, Lag: time.Duration(lag)}
			for _, k := range kinds {
				link.Rejected += k.Rejected
			}
			all = append(all, link)
		}
		return all
	}
}

// zoneLinkMetrics is a zone's connection.
func zoneLinkMetrics(zone string, global func() *inspect.GlobalLink) func() []metrics.Link {
	return func() []metrics.Link {
		link := global()
		if link == nil {
			return nil
		}
		return []metrics.Link{{Zone: zone, Connected: link.Connected, Lag: time.Duration(link.Lag),
			Rejected: len(link.Rejected)}}
	}
}
