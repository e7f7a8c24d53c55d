package dpserver

import (
	"maps"
	"slices"
	"time"

	"weft/internal/state"
	"weft/kind"
)

// Live is the configuration status of a proxy at the instance that has its stream. It is computed on request and never
// stored.
type Live struct {
	Connected      bool       `json:"connected"` // to this instance
	ConnectedSince *kind.Time `json:"connectedSince,omitempty"`
	Instance       string     `json:"instance"` // that returned this status
	// OtherInstance is the other instance that the proxy is connected to, which has its status.
	OtherInstance string `json:"otherInstance,omitempty"`
	// NotQueried is the reason why that instance has not responded.
	NotQueried string `json:"notQueried,omitempty"`
	// Agent is true if a weft-dp runs beside the Envoy: it can return Envoy's own pages.
	Agent bool `json:"agent"`
	// InSync is true if the proxy has acked or NACKed its whole configuration.
	InSync bool `json:"inSync"`
	// PendingSince is when the proxy went out of sync; absent while it is in sync.
	PendingSince *kind.Time `json:"pendingSince,omitempty"`
	// LastAck is the time of the last ACK.
	LastAck *kind.Time `json:"lastAck,omitempty"`
	// Responses counts the responses of this connection.
	Responses kind.ResponseCounts `json:"responses"`
	Types     []LiveType          `json:"types"`
	// NACKs are the resources that the proxy rejects now, with Envoy's messages.
	NACKs []kind.NACK `json:"nacks"`
}

// LiveType is the status of one type of resource. Revisions count the changes of this instance's tables: they can only
// be compared with each other.
type LiveType struct {
	Type string `json:"type"` // cluster, endpoint, listener, route, extension or secret
	// Wanted is the revision of the newest change for the proxy, Acknowledged the highest one that it has acked or
	// NACKed. It is in sync unless Acknowledged is smaller.
	Wanted       uint64 `json:"wanted"`
	Acknowledged uint64 `json:"acknowledged"`
}

// Live returns the configuration status of a proxy at this instance. It is cheap enough to be called for thousands of
// proxies.
func (s *Server) Live(key state.ProxyKey) Live {
	live := Live{Instance: s.Instance.ID(), Agent: s.sessionOf(key) != nil, Types: []LiveType{}, NACKs: []kind.NACK{}}
	p := s.peerOf(key)
	if p == nil {
		live.OtherInstance = s.otherInstance(key)
		return live
	}
	progress := p.stream.Progress()
	live.Connected, live.ConnectedSince = true, timeOrNil(p.since)
	live.InSync, live.PendingSince, live.LastAck = progress.InSync, timeOrNil(progress.PendingSince),
		timeOrNil(progress.LastAck)
	live.Responses = kind.ResponseCounts{Sent: progress.Sent, Acknowledged: progress.Acked, Rejected: progress.Rejected}
	for _, t := range progress.Types {
		live.Types = append(live.Types, LiveType{t.Type.String(), t.Wanted, t.Acknowledged})
	}
	live.NACKs = append(live.NACKs, p.currentNACKs()...)
	return live
}

// PendingProxies returns the proxies that are connected to this instance and have a pending ACK, with the start of the
// oldest one.
func (s *Server) PendingProxies() map[state.ProxyKey]time.Time {
	s.mu.Lock()
	peers := slices.Collect(maps.Values(s.peers))
	s.mu.Unlock()
	pending := map[state.ProxyKey]time.Time{}
	for _, p := range peers {
		if since := p.stream.PendingSince(); !since.IsZero() {
			pending[p.key] = since
		}
	}
	return pending
}

// ConnectedProxies returns the proxies of a mesh that are connected to this instance, in no order.
func (s *Server) ConnectedProxies(mesh string) []state.ProxyKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []state.ProxyKey
	for key := range s.peers {
		if key.Mesh == mesh {
			keys = append(keys, key)
		}
	}
	return keys
}

// timeOrNil returns a time for JSON; nil for the zero time.
func timeOrNil(t time.Time) *kind.Time {
	if t.IsZero() {
		return nil
	}
	return &kind.Time{Time: t}
}

func (s *Server) streamOpened(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[p.key] = p
}

func (s *Server) streamClosed(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[p.key] == p {
		delete(s.peers, p.key)
	}
}

// peerOf returns the stream of a proxy; nil if it has none.
func (s *Server) peerOf(key state.ProxyKey) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[key]
}
