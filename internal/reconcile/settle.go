package reconcile

import (
	"context"
	"time"

	"weft/internal/wait"
)

const (
	// settleTime bounds how long [Reconciler.Settle] waits: writes that fail are retried for longer.
	settleTime = 2 * time.Second
	// settlePoll is the time between two looks. What is written is a change of the table, from which further writes
	// may follow a moment later, so several looks in a row must find none.
	settlePoll  = 5 * time.Millisecond
	settleLooks = 4
	// settleSoon is the delay up to which a write is waited for. Identities are decided by statuses.
	settleSoon = statusDelay
)

// Settle returns once this replica has stored what follows from the rows of the table, such as the CA of a new mesh and
// the virtual IP of a new service, and the table has it. It does not wait for writes that are to happen later, such as
// retries, and not longer than [settleTime]. On a replica that is not the leader it returns at once. The error is that
// of ctx.
func (rc *Reconciler) Settle(ctx context.Context) error {
	end := time.Now().Add(settleTime)
	for looks := 0; looks < settleLooks && time.Now().Before(end); looks++ {
		if rc.runner.unsettled() {
			looks = -1
		}
		if err := wait.Sleep(ctx, settlePoll); err != nil {
			return err
		}
	}
	return nil
}

// unsettled reports whether a request is written now, or has written rows that the table does not have yet.
func (rn *runner) unsettled() bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	soon := rn.now().Add(settleSoon)
	for _, j := range rn.jobs {
		isDue := !j.due.IsZero() && !j.due.After(soon)
		isLate := len(j.unseen) > 0 && j.checkDelay == 0
		if rn.running && (j.running || isDue || isLate) {
			return true
		}
	}
	return false
}
