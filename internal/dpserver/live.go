package dpserver

import (
	"time"

	"weft/internal/graph"
	"weft/kind"
)

// Live is how far a proxy has come with its configuration, as the instance of the control plane knows it
// that holds its stream. It is of this moment and stored nowhere.
type Live struct {
	Connected      bool       `json:"connected"` // to this instance
	ConnectedSince *kind.Time `json:"connectedSince,omitempty"`
	Instance       string     `json:"instance"` // that answers
	// OtherInstance is another instance that the proxy is connected to, which is the one to ask.
	OtherInstance string `json:"otherInstance,omitempty"`
	// Agent says whether a weft-dp stands beside the Envoy, which can be asked for Envoy's own pages.
	Agent bool `json:"agent"`
	// InSync says that the proxy has, or has refused, everything that it is to have.
	InSync bool `json:"inSync"`
	// PendingSince is when it began to lack something, or to have something that it should not have; where
	// not settled.
	PendingSince *kind.Time `json:"pendingSince,omitempty"`
	// LastAck is when it last took something.
	LastAck *kind.Time `json:"lastAck,omitempty"`
	// Responses counts the responses of this connection.
	Responses kind.ResponseCounts `json:"responses"`
	Types     []LiveType          `json:"types"`
	// NACKs are what it refuses now, with Envoy's words.
	NACKs []kind.NACK `json:"nacks"`
}

// LiveType is how far a proxy has come with one type of resource. Revisions count the changes of this
// instance's memory: they are for comparing with each other.
type LiveType struct {
	Type string `json:"type"` // cluster, endpoint, listener, route, extension or secret
	// Wanted is the revision of the newest change that concerns the proxy, Acknowledged the one up to
	// which it has answered: it lacks nothing where that is not the smaller one.
	Wanted       uint64 `json:"wanted"`
	Acknowledged uint64 `json:"acknowledged"`
}

// Live answers how a proxy stands with this instance. It is cheap enough to be asked of thousands.
func (s *Server) Live(key graph.ProxyKey) Live {
	live := Live{Instance: s.Instance.ID(), Agent: s.session(key) != nil, Types: []LiveType{}, NACKs: []kind.NACK{}}
	p := s.peer(key)
	if p == nil {
		live.OtherInstance = s.elsewhere(key)
		return live
	}
	progress := p.stream.Progress()
	live.Connected, live.ConnectedSince = true, at(p.since)
	live.InSync, live.PendingSince, live.LastAck = progress.InSync, at(progress.PendingSince), at(progress.LastAck)
	live.Responses = kind.ResponseCounts{Sent: progress.Sent, Acknowledged: progress.Acked, Rejected: progress.Rejected}
	for _, t := range progress.Types {
		live.Types = append(live.Types, LiveType{t.Type.String(), t.Wanted, t.Acknowledged})
	}
	live.NACKs = append(live.NACKs, p.refuses()...)
	return live
}

// Connected answers the proxies of a mesh that are connected to this instance, in no order.
func (s *Server) Connected(mesh string) []graph.ProxyKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []graph.ProxyKey
	for key := range s.peers {
		if key.Mesh == mesh {
			keys = append(keys, key)
		}
	}
	return keys
}

// at is a time as it is written; nil for none.
func at(t time.Time) *kind.Time {
	if t.IsZero() {
		return nil
	}
	return &kind.Time{Time: t}
}

func (s *Server) came(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[p.key] = p
}

func (s *Server) went(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[p.key] == p {
		delete(s.peers, p.key)
	}
}

// peer answers the stream of a proxy; nil where there is none.
func (s *Server) peer(key graph.ProxyKey) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[key]
}
