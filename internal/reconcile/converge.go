package reconcile

import (
	"context"
	"fmt"
	"time"

	"weft/internal/wait"
)

const (
	// convergeTime bounds how long [Reconciler.Converge] waits: writes that fail are retried for longer.
	convergeTime = 2 * time.Second
	// convergeSoon is the delay up to which a write is waited for. Identities are decided by statuses.
	convergeSoon = statusDelay
	// followTime is how long a replica that is not the leader waits for a write of the leader: what the leader has not
	// written by then, it does not write for a reason that this replica lacks, such as an ack.
	followTime = convergeSoon + convergeTime
)

// Converge returns once the table has what follows from the rows that it had when Converge was called, such as the CA
// of a new mesh and the virtual IP of a new service, and nothing more is to be written for it. It does not wait for
// writes that are to happen later, such as retries, and not longer than [convergeTime]. On a replica that is not the
// leader it waits until the leader's writes have arrived: this replica knows which these are. pending states what has
// not arrived within the time; empty: nothing. The error is that of ctx.
func (rc *Reconciler) Converge(ctx context.Context) (pending string, err error) {
	rn := rc.runner
	revision := rn.plan.State.Tables.DB.Snapshot().Revision
	end := time.After(convergeTime)
	for {
		changed := rn.changed.Next() // before the look, so that no change is missed
		n, isLeader, until := rn.unconverged(revision)
		if n == 0 {
			return "", nil
		}
		var expires <-chan time.Time
		if !until.IsZero() {
			expires = time.After(until.Sub(rn.now()))
		}
		select {
		case <-changed:
		case <-expires:
		case <-end:
			return pendingWrites(n, isLeader), nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func pendingWrites(n int, isLeader bool) string {
	by := "the control plane has not written"
	if !isLeader {
		by = "this replica has not received from the leader"
	}
	return fmt.Sprintf("%s all that follows from earlier changes: %d writes are pending after %s", by, n, convergeTime)
}

// unconverged returns the number of requests that are written now or soon, or have written rows that the table does not
// have yet, and the time when this may change without a change of the jobs. The jobs of an older revision than the
// given one count as one request. It also reports whether this replica writes.
func (rn *runner) unconverged(revision uint64) (n int, isLeader bool, until time.Time) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.heard.Revision < revision {
		n = 1
	}
	now := rn.now()
	for _, j := range rn.jobs {
		isDue := !j.due.IsZero() && !j.due.After(now.Add(convergeSoon))
		isLate := len(j.unseen) > 0 && j.checkDelay == 0
		switch expires := j.changed.Add(followTime); {
		case rn.running && (j.running || isDue || isLate):
			n++
		case !rn.running && isDue && expires.After(now):
			n++
			until = wait.Earliest(until, expires)
		}
	}
	return n, rn.running, until
}
