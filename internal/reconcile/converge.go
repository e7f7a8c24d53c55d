package reconcile

import (
	"context"
	"time"

	"weft/internal/wait"
)

const (
	// convergeTime bounds how long [Reconciler.Converge] waits: writes that fail are retried for longer.
	convergeTime = 2 * time.Second
	// convergePoll is the time between two looks. What is written is a change of the table, from which further writes
	// may follow a moment later, so several looks in a row must find none.
	convergePoll  = 5 * time.Millisecond
	convergeLooks = 4
	// convergeSoon is the delay up to which a write is waited for. Identities are decided by statuses.
	convergeSoon = statusDelay
)

// Converge returns once this replica has stored what follows from the rows of the table, such as the CA of a new mesh
// and the virtual IP of a new service, and the table has it. It does not wait for writes that are to happen later, such
// as retries, and not longer than [convergeTime]. On a replica that is not the leader it returns at once. The error is
// that of ctx.
func (rc *Reconciler) Converge(ctx context.Context) error {
	end := time.Now().Add(convergeTime)
	for looks := 0; looks < convergeLooks && time.Now().Before(end); looks++ {
		if rc.runner.unconverged() {
			looks = -1
		}
		if err := wait.Sleep(ctx, convergePoll); err != nil {
			return err
		}
	}
	return nil
}

// unconverged reports whether a request is written now, or has written rows that the table does not have yet.
func (rn *runner) unconverged() bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	soon := rn.now().Add(convergeSoon)
	for _, j := range rn.jobs {
		isDue := !j.due.IsZero() && !j.due.After(soon)
		isLate := len(j.unseen) > 0 && j.checkDelay == 0
		if rn.running && (j.running || isDue || isLate) {
			return true
		}
	}
	return false
}
