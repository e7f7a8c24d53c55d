package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"weft/internal/traffic"
)

// check is one thing that the demo shows and that must hold.
type check struct {
	name string
	run  func(*world, context.Context) (string, error)
}

// checks, in the order in which they run.
var checks = []check{
	{"a request is balanced and identified", (*world).balancedAndIdentified},
	{"a request that a permission denies is refused", (*world).refusedWithReason},
	{"an instance is killed under traffic", (*world).instanceKilled},
	{"the control plane is killed and restarted under traffic", (*world).planeRestarted},
	{"nothing is wrong after all that", (*world).nothingWrong},
}

// result is what became of a check.
type result struct {
	name   string
	detail string
	err    error
}

func (r result) text() string {
	if r.err != nil {
		return r.err.Error()
	}
	return r.detail
}

const (
	// rate is how many requests a second run while things are killed.
	rate = 200
	// patience is when a client gives up; a request that takes longer has failed.
	patience = 5 * time.Second
	// calm is how long they run before and after; retries and reconnects fit well into it.
	calm = 2 * time.Second

	webID = "spiffe://default.default.mesh.local/workload/web"
)

// runChecks runs every check, prints the table, and says whether all held.
func (w *world) runChecks(ctx context.Context) bool {
	held := true
	var results []result
	for _, c := range checks {
		w.console.step("Check: %s", c.name)
		detail, err := c.run(w, ctx)
		if ctx.Err() != nil {
			return false
		}
		r := result{c.name, detail, err}
		w.console.note("%s", r.text())
		results = append(results, r)
		held = held && err == nil
	}
	w.console.results(results)
	return held
}

// balancedAndIdentified sends requests until both instances have answered, which also awaits the first
// endpoints, and then looks at a fixed number of them.
func (w *world) balancedAndIdentified(ctx context.Context) (string, error) {
	err := eventually(ctx, "both instances of backend answer", func(ctx context.Context) error {
		seen, _, err := w.sample(ctx, 10)
		if err == nil && len(seen) < 2 {
			err = fmt.Errorf("only %v answered", seen)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	w.console.command("curl", backendURL)
	one, err := fetch(ctx, backendURL)
	if err != nil {
		return "", err
	}
	w.console.output(string(one))
	seen, clients, err := w.sample(ctx, 40)
	if err != nil {
		return "", err
	}
	if len(clients) != 1 || clients[webID] == 0 {
		return "", fmt.Errorf("the server saw the clients %v, want only %s", clients, webID)
	}
	return fmt.Sprintf("%d from backend-1, %d from backend-2, all for %s", seen["backend-1"], seen["backend-2"], webID), nil
}

// sample sends n requests to backend and counts the instances that answered and the clients they saw.
func (w *world) sample(ctx context.Context, n int) (instances, clients map[string]int, err error) {
	instances, clients = map[string]int{}, map[string]int{}
	for range n {
		answer, err := call(ctx, http.DefaultClient, backendURL)
		if err != nil {
			return nil, nil, err
		}
		instances[answer.Instance]++
		clients[answer.Client]++
	}
	return instances, clients, nil
}

// refusedWithReason asks for what web may not have, and then asks why it was refused.
func (w *world) refusedWithReason(ctx context.Context) (string, error) {
	w.console.command("curl", "-w", ` %{http_code}\n`, reportsURL)
	var refusal reply
	err := eventually(ctx, "reports answers", func(ctx context.Context) (err error) {
		refusal, err = get(ctx, http.DefaultClient, reportsURL)
		if err == nil && refusal.status == http.StatusServiceUnavailable {
			err = fmt.Errorf("%d %s", refusal.status, firstLine(string(refusal.body)))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	w.console.output(fmt.Sprintf("%s %d", refusal.body, refusal.status))
	if refusal.status != http.StatusForbidden {
		return "", fmt.Errorf("the answer is %d, want 403", refusal.status)
	}
	reason, err := w.weft(ctx, "explain", "--from", "web", "--to", "reports")
	w.console.output(reason)
	if err != nil {
		return "", err
	}
	if !strings.Contains(reason, "reports-callers") {
		return "", errors.New("the explanation does not name the MeshTrafficPermission reports-callers")
	}
	return "403, and weft explain names MeshTrafficPermission reports-callers", nil
}

// instanceKilled kills the application, Envoy and weft-dp of one of two instances while requests run, and
// then brings them back.
func (w *world) instanceKilled(ctx context.Context) (string, error) {
	victim := w.instances[1]
	w.console.note("%d requests a second; application, Envoy and weft-dp of %s get SIGKILL", rate, victim.name)
	running := traffic.Start(rate, patience, ask(backendURL))
	pause(ctx, calm)
	victim.kill(w)
	pause(ctx, calm)
	count := running.Stop()
	verdict, err := count.Verdict()
	if err == nil && count.Answered[victim.name] == 0 {
		err = fmt.Errorf("%s answered no request before it was killed: this shows nothing", victim.name)
	}
	if err := victim.start(ctx, w, false); err != nil {
		return "", err
	}
	return verdict, errors.Join(err, victim.awaitReady(ctx))
}

// planeRestarted kills the control plane while requests run, starts it again, and waits until every proxy
// has come back to it.
func (w *world) planeRestarted(ctx context.Context) (string, error) {
	w.console.note("%d requests a second; the control plane gets SIGKILL and is started again", rate)
	running := traffic.Start(rate, patience, ask(backendURL))
	pause(ctx, calm)
	w.plane.kill()
	pause(ctx, calm)
	restarted := time.Now()
	err := w.plane.start(ctx)
	if err == nil {
		err = eventually(ctx, "every proxy is back", func(ctx context.Context) error {
			return w.plane.connectedSince(ctx, restarted, len(w.instances))
		})
	}
	pause(ctx, calm)
	verdict, failed := running.Stop().Verdict()
	return verdict, errors.Join(failed, err)
}

// nothingWrong asks the control plane what is wrong.
func (w *world) nothingWrong(ctx context.Context) (string, error) {
	report, err := w.weft(ctx, "check")
	w.console.output(report)
	if err == nil && !strings.Contains(report, "nothing is wrong") {
		err = errors.New("weft check finds something")
	}
	return firstLine(report), err
}

// pause waits, or less where the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
