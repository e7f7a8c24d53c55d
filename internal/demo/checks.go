package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"weft/internal/traffic"
	"weft/internal/wait"
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
	{"a request crosses to the other zone", (*world).crosses},
	{"an external service is reached through the egress, by whom its permission names", (*world).goesOut},
	{"an instance is killed under traffic", (*world).instanceKilled},
	{"a service fails over to the other zone, and back", (*world).failover},
	{"one of two ingresses is killed under traffic across zones", (*world).ingressKilled},
	{"the control plane of a zone is killed and restarted under traffic", (*world).zoneRestarted},
	{"the global control plane is killed and restarted under traffic across zones", (*world).globalRestarted},
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

	webID = "spiffe://default.east.mesh.local/workload/web"
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
		seen, _, err := w.sample(ctx, backendURL, 10)
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
	seen, clients, err := w.sample(ctx, backendURL, 40)
	if err != nil {
		return "", err
	}
	if len(clients) != 1 || clients[webID] == 0 {
		return "", fmt.Errorf("the server saw the clients %v, want only %s", clients, webID)
	}
	return fmt.Sprintf("%d from backend-1, %d from backend-2, all for %s", seen["backend-1"], seen["backend-2"], webID), nil
}

// sample sends n requests and counts the instances that answered and the clients they saw.
func (w *world) sample(ctx context.Context, url string, n int) (instances, clients map[string]int, err error) {
	instances, clients = map[string]int{}, map[string]int{}
	for range n {
		answer, err := call(ctx, http.DefaultClient, url)
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
	return w.refused(ctx, reportsURL, "web", "reports", "reports-callers")
}

// refused asks for what a client may not have, and then for the MeshTrafficPermission by which it was refused.
func (w *world) refused(ctx context.Context, url, from, to, permission string) (string, error) {
	w.console.command("curl", "-w", ` %{http_code}\n`, url)
	var refusal reply
	err := eventually(ctx, to+" answers", func(ctx context.Context) (err error) {
		refusal, err = get(ctx, http.DefaultClient, url)
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
	reason, err := w.east.weft(ctx, "explain", "--from", from, "--to", to)
	w.console.output(reason)
	if err != nil {
		return "", err
	}
	if !strings.Contains(reason, permission) {
		return "", errors.New("the explanation does not name the MeshTrafficPermission " + permission)
	}
	return "403, and weft explain names MeshTrafficPermission " + permission, nil
}

// goesOut asks what is outside of the mesh, as one who may and as one who may not.
func (w *world) goesOut(ctx context.Context) (string, error) {
	w.console.command("curl", outURL)
	var reached Response
	err := eventually(ctx, "the partner answers", func(ctx context.Context) (err error) {
		reached, err = call(ctx, http.DefaultClient, outURL)
		return err
	})
	if err != nil {
		return "", err
	}
	one, err := fetch(ctx, outURL)
	if err != nil {
		return "", err
	}
	w.console.output(string(one))
	if reached.Instance != partner || reached.Client != "" {
		return "", fmt.Errorf("%s answered, and saw the client %q; want %s, which sees no SPIFFE ID", reached.Instance, reached.Client, partner)
	}
	refusal, err := w.refused(ctx, reportsOutURL, "reports", partner, "partner-callers")
	return "web is answered; reports: " + refusal, err
}

// crosses asks the backend of the other zone, which sees who asks.
func (w *world) crosses(ctx context.Context) (string, error) {
	w.console.command("curl", acrossURL)
	var reached Response
	err := eventually(ctx, "the backend of the other zone answers", func(ctx context.Context) (err error) {
		reached, err = call(ctx, http.DefaultClient, acrossURL)
		return err
	})
	if err != nil {
		return "", err
	}
	one, err := fetch(ctx, acrossURL)
	if err != nil {
		return "", err
	}
	w.console.output(string(one))
	if reached.Instance != "backend-3" || reached.Client != webID {
		return "", fmt.Errorf("%s answered, and saw the client %q; want backend-3 and %s", reached.Instance, reached.Client, webID)
	}
	return fmt.Sprintf("answered by %s of %s, which saw %s", reached.Instance, west, reached.Client), nil
}

// instanceKilled kills the application, Envoy and weft-dp of one of two instances while requests run, and
// then brings them back.
func (w *world) instanceKilled(ctx context.Context) (string, error) {
	victim := w.instance("backend-2")
	w.console.note("%d requests a second; application, Envoy and weft-dp of %s get SIGKILL", rate, victim.name)
	count, verdict, err := w.killedUnderTraffic(ctx, backendURL, victim)
	if err == nil && count.Responses[victim.name] == 0 {
		err = fmt.Errorf("%s answered no request before it was killed: this shows nothing", victim.name)
	}
	return verdict, errors.Join(err, w.restart(ctx, victim))
}

// ingressKilled kills one of the two doors of the other zone.
func (w *world) ingressKilled(ctx context.Context) (string, error) {
	victim := w.instance("ingress-1")
	w.console.note("%d requests a second to the other zone; Envoy and weft-dp of %s get SIGKILL", rate, victim.name)
	_, verdict, err := w.killedUnderTraffic(ctx, acrossURL, victim)
	return verdict, errors.Join(err, w.restart(ctx, victim))
}

// killedUnderTraffic kills an instance while requests run, and answers what became of them.
func (w *world) killedUnderTraffic(ctx context.Context, url string, victim *instance) (traffic.Tally, string, error) {
	running := traffic.Start(rate, patience, ask(url))
	_ = wait.Sleep(ctx, calm)
	w.kill(victim)
	_ = wait.Sleep(ctx, calm)
	count := running.Stop()
	verdict, err := count.Verdict()
	return count, verdict, err
}

// failover kills all instances of the client's zone and brings them back, while requests run to the service
// that both zones have.
func (w *world) failover(ctx context.Context) (string, error) {
	here := []*instance{w.instance("backend-1"), w.instance("backend-2")}
	w.console.note("%d requests a second to %s; both instances of %s get SIGKILL and are started again", rate, anywhereURL, east)
	if err := w.answeredBy(ctx, anywhereURL, "backend-1", "backend-2"); err != nil {
		return "", err
	}
	running := traffic.Start(rate, patience, ask(anywhereURL))
	_ = wait.Sleep(ctx, calm)
	w.kill(here...)
	err := w.answeredBy(ctx, anywhereURL, "backend-3")
	_ = wait.Sleep(ctx, calm)
	err = errors.Join(err, w.restart(ctx, here...))
	if err == nil {
		err = w.answeredBy(ctx, anywhereURL, "backend-1", "backend-2")
	}
	count := running.Stop()
	verdict, failed := count.Verdict()
	return fmt.Sprintf("%s; %d answered in %s", verdict, count.Responses["backend-3"], west), errors.Join(failed, err)
}

// answeredBy waits until only these instances answer a URL.
func (w *world) answeredBy(ctx context.Context, url string, instances ...string) error {
	return eventually(ctx, url+" is answered by "+strings.Join(instances, " and ")+" alone", func(ctx context.Context) error {
		seen, _, err := w.sample(ctx, url, 20)
		if err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, instances) {
			return fmt.Errorf("it is by %s", strings.Join(got, " and "))
		}
		return nil
	})
}

// zoneRestarted kills the control plane of a zone while requests run in it, starts it again, and waits until
// every proxy has come back to it.
func (w *world) zoneRestarted(ctx context.Context) (string, error) {
	return w.planeRestarted(ctx, w.east, backendURL, "meshes/default/dataplanes", 5)
}

// globalRestarted cuts the zones off from the global control plane and from each other's news.
func (w *world) globalRestarted(ctx context.Context) (string, error) {
	return w.planeRestarted(ctx, w.global, acrossURL, "zones", 2)
}

// planeRestarted kills a control plane while requests run, starts it again, and waits until all that was
// connected to it is back.
func (w *world) planeRestarted(ctx context.Context, p *plane, url, what string, count int) (string, error) {
	w.console.note("%d requests a second to %s; the control plane of %s gets SIGKILL and is started again", rate, url, p.name)
	running := traffic.Start(rate, patience, ask(url))
	_ = wait.Sleep(ctx, calm)
	p.kill()
	_ = wait.Sleep(ctx, calm)
	restarted := time.Now()
	err := p.start(ctx)
	if err == nil {
		err = eventually(ctx, "all that was connected is back", func(ctx context.Context) error {
			return p.connectedSince(ctx, what, restarted, count)
		})
	}
	_ = wait.Sleep(ctx, calm)
	verdict, failed := running.Stop().Verdict()
	return verdict, errors.Join(failed, err)
}

// nothingWrong asks every control plane what is wrong, and the global one how the zones are.
func (w *world) nothingWrong(ctx context.Context) (string, error) {
	for _, p := range []*plane{w.global, w.east, w.west} {
		report, err := p.weft(ctx, "check")
		w.console.output(report)
		if err == nil && !strings.Contains(report, "nothing is wrong") {
			err = fmt.Errorf("weft check finds something at %s", p.name)
		}
		if err != nil {
			return "", err
		}
	}
	zones, err := w.global.weft(ctx, "inspect", "zones")
	w.console.output(zones)
	return "weft check finds nothing, at global and in both zones", err
}
