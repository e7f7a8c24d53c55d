package instances

import (
	"slices"
	"time"

	"weft/kind"
)

const (
	// renewal is how often an instance renews its row.
	renewal = 5 * time.Second
	// silence is how long an instance may leave its row as it is before another one deletes it.
	silence = 15 * time.Second
	// assurance is how long after the beginning of a renewal an instance goes on leading. It ends before
	// silence does, whenever the others heard of the renewal, so that no two lead at once.
	assurance = 12 * time.Second
	// retry is how soon a renewal that failed is tried again.
	retry = time.Second
)

// view is what one instance knows of those that share its store. It does no I/O, and the time is an
// argument: this machine's own, compared with nobody else's.
type view struct {
	self  string
	began time.Time

	peers map[string]peer      // the others, whose rows are there
	gone  map[string]departure // the others whose rows were there
	went  int                  // how often one went

	leadership kind.Leadership
	version    string    // of the row of the leadership; empty: there is none
	took       bool      // the leadership as it stands was taken by this instance, and not let go since
	assured    time.Time // no other instance may have taken this one for dead until then

	ackRequests map[string]kind.AckRequest
}

type peer struct {
	version string    // of its row
	heard   time.Time // when that version was first seen here
}

type departure struct {
	seen  time.Time // when its row was seen to be gone
	heard time.Time // when it was heard of last
	empty bool      // all its clients are elsewhere
}

func newView(self string, now time.Time) *view {
	return &view{self: self, began: now, peers: map[string]peer{}, gone: map[string]departure{},
		ackRequests: map[string]kind.AckRequest{}}
}

// hear takes note of the row of an instance.
func (v *view) hear(id, version string, now time.Time) {
	if id != v.self && v.peers[id].version != version {
		v.peers[id] = peer{version, now}
		delete(v.gone, id)
	}
}

// miss takes note that the row of an instance is gone.
func (v *view) miss(id string, now time.Time) {
	if p, was := v.peers[id]; was {
		v.gone[id] = departure{seen: now, heard: p.heard}
		v.went++
		delete(v.peers, id)
	}
}

// renewed takes note of a renewal of this instance's row, by when it began. After one that failed,
// nothing was heard of the others either, and what they did meanwhile is not held against them.
func (v *view) renewed(began time.Time, failedBefore bool) {
	v.assured = began.Add(assurance)
	if failedBefore {
		for id, p := range v.peers {
			v.peers[id] = peer{p.version, began}
		}
	}
}

// lost takes note that the others took this instance for dead.
func (v *view) lost() { v.assured, v.took = time.Time{}, false }

// silent answers the others that are to be taken for dead, with the version of their row that has stood
// for too long, and when the next one would be.
func (v *view) silent(now time.Time) (dead map[string]string, next time.Time) {
	dead = map[string]string{}
	for id, p := range v.peers {
		if end := p.heard.Add(silence); !end.After(now) {
			dead[id] = p.version
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return dead, next
}

// lead takes note of the row of the leadership. What an earlier term said arrives late, and says nothing.
func (v *view) lead(l kind.Leadership, version string, took bool) {
	if l.Term < v.leadership.Term {
		return
	}
	v.took = took || v.took && l == v.leadership
	v.leadership, v.version = l, version
}

// leads says whether this instance leads.
func (v *view) leads(now time.Time) bool { return v.took && now.Before(v.assured) }

// mayLead says whether the leadership is there to be taken. Who let go of it takes it anew: only the
// write tells whether somebody else was faster.
func (v *view) mayLead(now time.Time) bool {
	if v.leads(now) || !now.Before(v.assured) {
		return false
	}
	_, lives := v.peers[v.leadership.Holder]
	return !lives
}

// ended answers when an instance was heard of last, where it is live no more; of one that was never
// heard of, when this one began.
func (v *view) ended(id string) (last time.Time, ended bool) {
	if _, lives := v.peers[id]; lives || id == v.self {
		return time.Time{}, false
	}
	if d, known := v.gone[id]; known {
		return d.heard, true
	}
	return v.began, true
}

// missing are the instances that have not answered an ack request: those that live, and those that went
// within the time for which clients that are nowhere else may still send by what they had; and when the
// next of these need no longer be waited for.
func (v *view) missing(answers []string, now time.Time, lost time.Duration) (ids []string, next time.Time) {
	for id := range v.peers {
		if !slices.Contains(answers, id) {
			ids = append(ids, id)
		}
	}
	for id, d := range v.gone {
		end := d.seen.Add(lost)
		if d.empty || slices.Contains(answers, id) || !end.After(now) {
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

// departed are the instances that went so lately that their clients matter.
func (v *view) departed(now time.Time, lost time.Duration) (ids []string) {
	for id, d := range v.gone {
		if !d.empty && d.seen.Add(lost).After(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// emptied takes note that all clients of an instance that went are elsewhere.
func (v *view) emptied(id string) {
	if d, ok := v.gone[id]; ok {
		d.empty = true
		v.gone[id] = d
	}
}

// orphaned are the ack requests of instances that are no more.
func (v *view) orphaned() (ids []string) {
	for id, ackRequest := range v.ackRequests {
		if _, ended := v.ended(ackRequest.Requester); ended {
			ids = append(ids, id)
		}
	}
	return ids
}

// unanswered are the ack requests of others that this instance has not answered.
func (v *view) unanswered() (ids []string) {
	for id, ackRequest := range v.ackRequests {
		if ackRequest.Requester != v.self && !slices.Contains(ackRequest.AckedBy, v.self) {
			ids = append(ids, id)
		}
	}
	return ids
}
