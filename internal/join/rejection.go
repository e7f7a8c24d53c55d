package join

import (
	"maps"
	"time"

	"google.golang.org/grpc/status"
)

// Rejection is the last attempt of the control plane of a zone to connect to this instance that was rejected.
type Rejection struct {
	At       time.Time // zero: there is none since it was accepted
	Attempts int       // since it was accepted
	From     string    // its address
	Reason   string
}

// maxReason bounds the bytes of a reason, since a token may have long claims.
const maxReason = 512

// noteRejected notes a rejection of a zone that exists. Anybody may state its name.
func (g *Global) noteRejected(zone, from string, err error) {
	if _, exists := g.logs.zoneEnabled(zone); !exists {
		return
	}
	reason := status.Convert(err).Message()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rejected[zone] = Rejection{At: time.Now(), Attempts: g.rejected[zone].Attempts + 1, From: from,
		Reason: reason[:min(len(reason), maxReason)]}
}

func (g *Global) noteAccepted(zone string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.rejected, zone)
}

// Rejections returns the last rejections of zones.
func (g *Global) Rejections() map[string]Rejection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.rejected)
}
