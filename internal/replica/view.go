package replica

import (
	"cmp"
	"slices"
	"time"

	"weft/kind"
)

const (
	// maxRenewPeriod is the longest period of renewals.
	maxRenewPeriod = 5 * time.Second
	// retryPeriod is the pause after a failed renewal.
	retryPeriod = time.Second
)

// Timing has the times of leases.
type Timing struct {
	// LeaseDuration is the time without a renewal after which another replica deletes the row; 0: 15 seconds.
	LeaseDuration time.Duration
	// RenewDeadline is the time after the start of a renewal for which a replica may lead; 0: 12 seconds. It is shorter
	// than LeaseDuration, so that no two replicas lead at once, whenever the others read the renewal.
	RenewDeadline time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{cmp.Or(t.LeaseDuration, 15*time.Second), cmp.Or(t.RenewDeadline, 12*time.Second)}
}

// Expiry is the time after its last renewal by which the others have found that a replica has lost its lease, with time
// to store that.
func (t Timing) Expiry() time.Duration { return 4 * t.withDefaults().LeaseDuration }

// renewPeriod is the period of renewals. One may fail before the deadline.
func (t Timing) renewPeriod() time.Duration { return min(maxRenewPeriod, t.RenewDeadline/2) }

// view is a replica's knowledge of those that share its store. It does no I/O. Times are arguments, of this machine's
// clock only.
type view struct {
	self   string
	began  time.Time
	timing Timing

	peers      map[string]peer          // the others with a row
	rows       map[string]kind.Instance // of the peers
	gone       map[string]departure     // the others whose row was deleted
	departures int                      // number of departures

	leadership      kind.Leadership
	version         string    // of the row of the leadership; empty: there is none
	holdsLeadership bool      // this replica wrote the present leadership, and has not given it up
	leadUntil       time.Time // no other replica may have deleted this one's row until then

	ackRequests map[string]kind.AckRequest
}

type peer struct {
	version   string    // of its row
	renewedAt time.Time // the time at which that version was first read
	renewed   bool      // an earlier version was read before
}

type departure struct {
	deletedAt time.Time // the time at which the deletion was read
	renewedAt time.Time // the time of its last renewal
	noClients bool      // all its clients have connected to other replicas
}

func newView(self string, now time.Time, timing Timing) *view {
	return &view{self: self, began: now, timing: timing.withDefaults(), peers: map[string]peer{},
		rows: map[string]kind.Instance{}, gone: map[string]departure{},
		ackRequests: map[string]kind.AckRequest{}}
}

// observe records the row of a replica.
func (v *view) observe(id, version string, now time.Time) {
	if was, known := v.peers[id]; id != v.self && was.version != version {
		v.peers[id] = peer{version, now, known}
		delete(v.gone, id)
	}
}

// observeDeletion records the deletion of a replica's row.
func (v *view) observeDeletion(id string, now time.Time) {
	if p, was := v.peers[id]; was {
		v.gone[id] = departure{deletedAt: now, renewedAt: p.renewedAt}
		v.departures++
		delete(v.peers, id)
	}
}

// renewed records a renewal of this replica's row, by the time of its start. After a failed renewal, the others' rows
// could not be read either, so their time starts anew.
func (v *view) renewed(began time.Time, failedBefore bool) {
	v.leadUntil = began.Add(v.timing.RenewDeadline)
	if failedBefore {
		for id, p := range v.peers {
			v.peers[id] = peer{p.version, began, p.renewed}
		}
	}
}

// leaseExpired records that another replica deleted this one's row.
func (v *view) leaseExpired() { v.leadUntil, v.holdsLeadership = time.Time{}, false }

// expired returns the expired others with the versions of their rows, and the next time at which one may expire.
func (v *view) expired(now time.Time) (dead map[string]string, next time.Time) {
	dead = map[string]string{}
	for id, p := range v.peers {
		if end := p.renewedAt.Add(v.timing.LeaseDuration); !end.After(now) {
			dead[id] = p.version
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return dead, next
}

// lead records the row of the leadership. It ignores a row of an earlier term that arrives late.
func (v *view) lead(l kind.Leadership, version string, took bool) {
	if l.Term < v.leadership.Term {
		return
	}
	v.holdsLeadership = took || v.holdsLeadership && l == v.leadership
	v.leadership, v.version = l, version
}

// leads reports whether this replica leads.
func (v *view) leads(now time.Time) bool { return v.holdsLeadership && now.Before(v.leadUntil) }

// leaderless returns the time since which no replica leads; false: one does.
func (v *view) leaderless(now time.Time) (since time.Time, ok bool) {
	holder := v.leadership.Holder
	peer, isLive := v.peers[holder]
	departed, isGone := v.gone[holder]
	switch {
	case holder == v.self && v.leads(now):
		return time.Time{}, false
	case holder == v.self && v.leadUntil.Before(now):
		return v.leadUntil, true
	case holder == v.self:
		return now, true
	case isLive:
		since = peer.renewedAt.Add(v.timing.LeaseDuration)
		return since, !since.After(now)
	case isGone:
		return departed.deletedAt, true
	}
	return v.began, true
}

// mayLead reports whether the leadership is free. This replica may take it again after giving it up: the conditional
// write decides between several replicas.
func (v *view) mayLead(now time.Time) bool {
	if v.leads(now) || !now.Before(v.leadUntil) {
		return false
	}
	_, lives := v.peers[v.leadership.Holder]
	return !lives
}

// ended reports whether a replica is not live, and the time of its last renewal. For an unknown one, it is the start of
// this replica.
func (v *view) ended(id string) (last time.Time, ended bool) {
	if _, lives := v.peers[id]; lives || id == v.self {
		return time.Time{}, false
	}
	if d, known := v.gone[id]; known {
		return d.renewedAt, true
	}
	return v.began, true
}

// missing returns the replicas that have not responded to an ack request, live or departed within the time for which
// clients without a replica may use older configuration. next is the time at which the first departed one does not
// count any more.
func (v *view) missing(responses []string, now time.Time, lost time.Duration) (ids []string, next time.Time) {
	for id := range v.peers {
		if !slices.Contains(responses, id) {
			ids = append(ids, id)
		}
	}
	for id, d := range v.gone {
		end := d.deletedAt.Add(lost)
		if d.noClients || slices.Contains(responses, id) || !end.After(now) {
			continue
		}
		ids = append(ids, id)
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	slices.Sort(ids)
	return ids, next
}

// departed returns the replicas that left so recently that their clients count.
func (v *view) departed(now time.Time, lost time.Duration) (ids []string) {
	for id, d := range v.gone {
		if !d.noClients && d.deletedAt.Add(lost).After(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// recordNoClients records that all clients of a departed replica have connected to others.
func (v *view) recordNoClients(id string) {
	if d, ok := v.gone[id]; ok {
		d.noClients = true
		v.gone[id] = d
	}
}

// unowned returns the ack requests of departed replicas.
func (v *view) unowned() (ids []string) {
	for id, ackRequest := range v.ackRequests {
		if _, ended := v.ended(ackRequest.Requester); ended {
			ids = append(ids, id)
		}
	}
	return ids
}

// pendingRequests returns the ack requests of others without a response of this replica.
func (v *view) pendingRequests() (ids []string) {
	for id, ackRequest := range v.ackRequests {
		if ackRequest.Requester != v.self && !slices.Contains(ackRequest.AckedBy, v.self) {
			ids = append(ids, id)
		}
	}
	return ids
}
