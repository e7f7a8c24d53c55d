package rest

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"weft/internal/access"
	"weft/internal/wait"
	"weft/resource"
)

// Bounds of the writes of one user who is no operator, dry runs and deletions included. Each may change the
// configuration of every proxy of a mesh. Further ones wait for their turn.
const (
	writesAtOnce, writesASecond = 1000, 100
	// longestTurn is how long a write waits. One that would wait for longer is rejected.
	longestTurn = 5 * time.Second
	// maxWriters is the number of users whose rates are kept. All of them get a new one when there are more.
	maxWriters = 10_000
)

// writeRates are the rates of users.
type writeRates struct {
	mu    sync.Mutex
	users map[string]*wait.Rate
}

func (w *writeRates) of(user string) *wait.Rate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users[user] == nil {
		if w.users == nil || len(w.users) == maxWriters {
			w.users = map[string]*wait.Rate{}
		}
		w.users[user] = wait.NewRate(writesAtOnce, writesASecond)
	}
	return w.users[user]
}

// awaitTurn returns when the sender of a request may write, or an error where its writes are too many. The request
// counts as a number of writes. An operator does not wait: the action is for what concerns everybody.
func (g *Guard) awaitTurn(w http.ResponseWriter, r *http.Request, writes int) error {
	user := access.UserOf(r.Context())
	if g.Rules.Check(user, access.OperatorResources, access.GlobalScope, requested(r)) == nil {
		return nil
	}
	after, ok := g.writes.of(user.Name).Charge(writes, g.Now(), longestTurn)
	if !ok {
		seconds := int(math.Ceil(after.Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(seconds)) // RFC 9110, section 10.2.3
		return resource.Errorf(resource.Unavailable,
			"the user %q writes more than %d resources a second, and %d at once; try again in %d s", user.Name,
			writesASecond, writesAtOnce, seconds)
	}
	return wait.Sleep(r.Context(), after)
}
