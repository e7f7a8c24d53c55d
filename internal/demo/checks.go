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

	"weft/internal/demo/console"
	"weft/internal/traffic"
	"weft/internal/wait"
)

// check is one property of the mesh that the demo shows and verifies.
type check struct {
	name string
	run  func(*world, context.Context) (string, error)
}

// checks has the checks in the order in which they run.
var checks = []check{
	{"a request is balanced and identified", (*world).balancedAndIdentified},
	{"a request that no permission allows is denied, with the reason", (*world).deniedWithReason},
	{"a request crosses to the other zone", (*world).reachesOtherZone},
	{"an external service is reached through the egress, by allowed clients only", (*world).reachesExternalService},
	{"an instance is killed under traffic", (*world).instanceKilled},
	{"a service fails over to the other zone, and back", (*world).failover},
	{"one of two ingresses is killed under traffic across zones", (*world).ingressKilled},
	{"the control plane of a zone is killed and restarted under traffic", (*world).zoneRestarted},
	{"the global control plane is killed and restarted under traffic across zones", (*world).globalRestarted},
	{"weft check finds no problem afterwards", (*world).noFindings},
}

const (
	// rate is the number of requests a second while processes are killed.
	rate = 200
	// requestTimeout is the timeout of a client; a request that takes longer has failed.
	requestTimeout = 5 * time.Second
	// calm is the duration of the traffic before and after a kill. It is longer than retries and reconnects take.
	calm = 2 * time.Second

	webID = "spiffe://default.east.mesh.local/workload/web"
)

// runChecks runs every check, prints the table, and returns whether all passed.
func (w *world) runChecks(ctx context.Context) bool {
	passed := true
	var results []console.Result
	for _, c := range checks {
		w.console.Step("Check: %s", c.name)
		detail, err := c.run(w, ctx)
		if ctx.Err() != nil {
			return false
		}
		r := console.Result{Name: c.name, Detail: detail, Err: err}
		w.console.Note("%s", r.Text())
		results = append(results, r)
		passed = passed && err == nil
	}
	w.console.Results(results)
	return passed
}

// balancedAndIdentified sends requests until both instances have responded, which also waits for the first endpoints.
// Then it counts the instances and clients of a fixed number of requests.
func (w *world) balancedAndIdentified(ctx context.Context) (string, error) {
	err := eventually(ctx, "both instances of backend respond", func(ctx context.Context) error {
		seen, _, err := w.sample(ctx, backendURL, 10)
		if err == nil && len(seen) < 2 {
			err = fmt.Errorf("only %v responded", seen)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	w.console.Command("curl", backendURL)
	one, err := fetch(ctx, backendURL)
	if err != nil {
		return "", err
	}
	w.console.Output(string(one))
	seen, clients, err := w.sample(ctx, backendURL, 40)
	if err != nil {
		return "", err
	}
	if len(clients) != 1 || clients[webID] == 0 {
		return "", fmt.Errorf("the server saw the clients %v, want only %s", clients, webID)
	}
	return fmt.Sprintf("%d from backend-1, %d from backend-2, all for %s", seen["backend-1"], seen["backend-2"], webID),
		nil
}

// sample sends n requests and counts the instances that responded and the clients that they identified.
func (w *world) sample(ctx context.Context, url string, n int) (instances, clients map[string]int, err error) {
	instances, clients = map[string]int{}, map[string]int{}
	for range n {
		response, err := call(ctx, http.DefaultClient, url)
		if err != nil {
			return nil, nil, err
		}
		instances[response.Instance]++
		clients[response.Client]++
	}
	return instances, clients, nil
}

// deniedWithReason sends a request that web may not send, and explains the denial.
func (w *world) deniedWithReason(ctx context.Context) (string, error) {
	return w.denied(ctx, reportsURL, "web", "reports", "reports-callers")
}

// denied sends a request that is not allowed, and checks that weft explain names the MeshTrafficPermission.
func (w *world) denied(ctx context.Context, url, from, to, permission string) (string, error) {
	w.console.Command("curl", "-w", ` %{http_code}\n`, url)
	var denial reply
	err := eventually(ctx, to+" responds", func(ctx context.Context) (err error) {
		denial, err = get(ctx, http.DefaultClient, url)
		if err == nil && denial.status == http.StatusServiceUnavailable {
			err = fmt.Errorf("%d %s", denial.status, console.FirstLine(string(denial.body)))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	w.console.Output(fmt.Sprintf("%s %d", denial.body, denial.status))
	if denial.status != http.StatusForbidden {
		return "", fmt.Errorf("the status is %d, want 403", denial.status)
	}
	reason, err := w.east.weft(ctx, "explain", "--from", from, "--to", to)
	w.console.Output(reason)
	if err != nil {
		return "", err
	}
	if !strings.Contains(reason, permission) {
		return "", errors.New("the explanation does not name the MeshTrafficPermission " + permission)
	}
	return "403, and weft explain names MeshTrafficPermission " + permission, nil
}

// reachesExternalService sends requests to a service outside of the mesh, from an allowed client and from a denied one.
func (w *world) reachesExternalService(ctx context.Context) (string, error) {
	w.console.Command("curl", outURL)
	var reached Response
	err := eventually(ctx, "the partner responds", func(ctx context.Context) (err error) {
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
	w.console.Output(string(one))
	if reached.Instance != partner || reached.Client != "" {
		return "", fmt.Errorf("%s responded, and identified the client as %q; want %s, which receives no SPIFFE ID",
			reached.Instance, reached.Client, partner)
	}
	denial, err := w.denied(ctx, reportsOutURL, "reports", partner, "partner-callers")
	return "web: 200; reports: " + denial, err
}

// reachesOtherZone sends a request to the backend of the other zone, which identifies the client.
func (w *world) reachesOtherZone(ctx context.Context) (string, error) {
	w.console.Command("curl", acrossURL)
	var reached Response
	err := eventually(ctx, "the backend of the other zone responds", func(ctx context.Context) (err error) {
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
	w.console.Output(string(one))
	if reached.Instance != "backend-3" || reached.Client != webID {
		return "", fmt.Errorf("%s responded, and identified the client as %q; want backend-3 and %s", reached.Instance,
			reached.Client, webID)
	}
	return fmt.Sprintf("served by %s of %s, which identified the client as %s", reached.Instance, west, reached.Client),
		nil
}

// instanceKilled kills the application, Envoy and weft-dp of one of two instances under traffic, and then restarts
// them.
func (w *world) instanceKilled(ctx context.Context) (string, error) {
	victim := w.instance("backend-2")
	w.console.Note("%d requests a second; application, Envoy and weft-dp of %s get SIGKILL", rate, victim.name)
	count, verdict, err := w.killedUnderTraffic(ctx, backendURL, victim)
	if err == nil && count.Responses[victim.name] == 0 {
		err = fmt.Errorf("%s served no request before it was killed: the check is void", victim.name)
	}
	return verdict, errors.Join(err, w.restart(ctx, victim))
}

// ingressKilled kills one of the two zone ingresses of the other zone.
func (w *world) ingressKilled(ctx context.Context) (string, error) {
	victim := w.instance("ingress-1")
	w.console.Note("%d requests a second to the other zone; Envoy and weft-dp of %s get SIGKILL", rate, victim.name)
	_, verdict, err := w.killedUnderTraffic(ctx, acrossURL, victim)
	return verdict, errors.Join(err, w.restart(ctx, victim))
}

// killedUnderTraffic kills an instance under traffic, and returns the results of the requests.
func (w *world) killedUnderTraffic(ctx context.Context, url string, victim *instance) (traffic.Tally, string, error) {
	running := traffic.Start(rate, requestTimeout, trafficTo(url))
	_ = wait.Sleep(ctx, calm)
	w.kill(victim)
	_ = wait.Sleep(ctx, calm)
	count := running.Stop()
	verdict, err := count.Verdict()
	return count, verdict, err
}

// failover kills all instances of the client's zone and restarts them, under traffic to the service of both zones.
func (w *world) failover(ctx context.Context) (string, error) {
	here := []*instance{w.instance("backend-1"), w.instance("backend-2")}
	w.console.Note("%d requests a second to %s; both instances of %s get SIGKILL and are started again", rate,
		anywhereURL, east)
	if err := w.servedBy(ctx, anywhereURL, "backend-1", "backend-2"); err != nil {
		return "", err
	}
	running := traffic.Start(rate, requestTimeout, trafficTo(anywhereURL))
	_ = wait.Sleep(ctx, calm)
	w.kill(here...)
	err := w.servedBy(ctx, anywhereURL, "backend-3")
	_ = wait.Sleep(ctx, calm)
	err = errors.Join(err, w.restart(ctx, here...))
	if err == nil {
		err = w.servedBy(ctx, anywhereURL, "backend-1", "backend-2")
	}
	count := running.Stop()
	verdict, failed := count.Verdict()
	return fmt.Sprintf("%s; %d served in %s", verdict, count.Responses["backend-3"], west), errors.Join(failed, err)
}

// servedBy waits until only these instances serve a URL.
func (w *world) servedBy(ctx context.Context, url string, instances ...string) error {
	return eventually(ctx, url+" is served by "+strings.Join(instances, " and ")+" alone",
		func(ctx context.Context) error {
			seen, _, err := w.sample(ctx, url, 20)
			if err != nil {
				return err
			}
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, instances) {
				return fmt.Errorf("it is served by %s", strings.Join(got, " and "))
			}
			return nil
		})
}

// zoneRestarted restarts the control plane of a zone under traffic in the zone, and waits until every proxy has
// reconnected.
func (w *world) zoneRestarted(ctx context.Context) (string, error) {
	return w.planeRestarted(ctx, w.east, backendURL, "meshes/default/dataplanes", 5)
}

// globalRestarted restarts the global control plane under cross-zone traffic, and waits until both zones have
// reconnected.
func (w *world) globalRestarted(ctx context.Context) (string, error) {
	return w.planeRestarted(ctx, w.global, acrossURL, "zones", 2)
}

// planeRestarted kills a control plane under traffic, starts it again, and waits until count proxies or zones have
// reconnected.
func (w *world) planeRestarted(ctx context.Context, p *plane, url, what string, count int) (string, error) {
	w.console.Note("%d requests a second to %s; the control plane of %s gets SIGKILL and is started again", rate, url,
		p.name)
	running := traffic.Start(rate, requestTimeout, trafficTo(url))
	_ = wait.Sleep(ctx, calm)
	p.kill()
	_ = wait.Sleep(ctx, calm)
	restarted := time.Now()
	err := p.start(ctx)
	if err == nil {
		err = eventually(ctx, "all clients have reconnected", func(ctx context.Context) error {
			return p.connectedSince(ctx, what, restarted, count)
		})
	}
	_ = wait.Sleep(ctx, calm)
	verdict, failed := running.Stop().Verdict()
	return verdict, errors.Join(failed, err)
}

// noFindings runs weft check at every control plane, and shows the zones.
func (w *world) noFindings(ctx context.Context) (string, error) {
	for _, p := range []*plane{w.global, w.east, w.west} {
		report, err := p.weft(ctx, "check")
		w.console.Output(report)
		if err == nil && !strings.Contains(report, "nothing is wrong") {
			err = fmt.Errorf("weft check finds something at %s", p.name)
		}
		if err != nil {
			return "", err
		}
	}
	zones, err := w.global.weft(ctx, "inspect", "zones")
	w.console.Output(zones)
	return "weft check finds nothing, at global and in both zones", err
}
