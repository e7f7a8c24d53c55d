package node_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

var promotions = flag.Int("promotions", 0, "number of blue/green promotions by Argo Rollouts with and without ignored "+
	"labels; 0: 2 of each, where it is built")

var argo struct {
	sync.Once
	err error
}

// TestPromotions promotes new Pods under traffic, with the ignored labels that the documentation of blue/green
// deployments has, and without. No request fails.
func TestPromotions(t *testing.T) {
	w := mesh(t)
	if err := w.HasArgo(); err != nil && *promotions == 0 {
		t.Skip(err)
	}
	argo.Do(func() { argo.err = w.StartArgo(t.Context()) })
	if argo.err != nil {
		t.Fatal(argo.err)
	}
	rows := map[string]traffic.Tally{}
	for _, model := range []struct{ name, labels string }{
		{"ignored labels set", "rollouts-pod-template-hash"}, {"ignored labels not set", ""},
	} {
		t.Run(model.name, func(t *testing.T) {
			w := &world{w.Node, t}
			w.kubectl("set", "env", "deployment/kuma-control-plane", "-n", "kuma-system",
				shop.IgnoredLabelsVariable+"="+model.labels)
			w.kubectl("rollout", "status", "deployment/kuma-control-plane", "-n", "kuma-system", "--timeout", "3m")
			rows[model.name] = w.promote(strings.ReplaceAll(model.name, " ", "-"), max(2, *promotions))
		})
	}
	if *promotions > 0 {
		printRows(rows)
	}
}

// promote promotes new Pods n times under traffic.
func (w *world) promote(namespace string, n int) traffic.Tally {
	w.t.Helper()
	s := w.open(namespace, shop.Rollout(namespace, "web", 2))
	w.wait("rollout/web", "jsonpath={.status.phase}=Healthy", "-n", namespace)
	run := s.Send()
	for i := range n {
		if err := s.Promote(w.t.Context(), fmt.Sprint(i)); err != nil {
			w.t.Fatal(err)
		}
	}
	tally := run.Stop()
	if verdict, err := tally.Verdict(); err != nil {
		w.t.Error(err)
	} else {
		w.t.Logf("%d promotions: %s, by %d servers", n, verdict, len(tally.Responses))
	}
	if len(tally.Responses) < 2*n {
		w.t.Errorf("%d Pods have responded in %d promotions, want two of each", len(tally.Responses), n)
	}
	return tally
}

// printRows prints what was sent, and what failed by cause.
func printRows(rows map[string]traffic.Tally) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "DRILL\tPROMOTIONS\tSENT\tRESPONSES\tFAILED\tSLOWEST\tCAUSES")
	for name, tally := range rows {
		failed, causes := tally.Failures()
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d ms\t%s\n", name, *promotions, tally.Sent, tally.Sent-failed, failed,
			tally.Slowest.Milliseconds(), causes)
	}
	out.Flush()
}
