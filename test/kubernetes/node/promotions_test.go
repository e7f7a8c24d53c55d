package node_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	"weft/test/kubernetes/shop"
)

var promotions = flag.Int("promotions", 2, "number of blue/green promotions by Argo Rollouts with ignored labels, "+
	"and as many without")

var argo struct {
	sync.Once
	err error
}

// TestDrillPromotions promotes new Pods under traffic, with the ignored labels that the documentation of blue/green
// deployments has, and without. No request fails.
func TestDrillPromotions(t *testing.T) {
	w := mesh(t)
	argo.Do(func() { argo.err = w.StartArgo(t.Context()) })
	if argo.err != nil {
		t.Fatal(argo.err)
	}
	w.restore()
	for _, model := range []struct {
		name   string
		values []string
	}{
		{"ignored labels set", []string{shop.IgnoredLabels}}, {"ignored labels not set", nil},
	} {
		t.Run(model.name, func(t *testing.T) {
			w := &world{w.Node, t}
			w.install(model.values...)
			w.promote(model.name, *promotions)
		})
	}
}

// promote promotes new Pods n times under traffic.
func (w *world) promote(name string, n int) {
	w.t.Helper()
	namespace := strings.ReplaceAll(name, " ", "-")
	s := w.open(namespace, shop.Rollout(namespace, "web", 2))
	w.wait("rollout/web", "jsonpath={.status.phase}=Healthy", "-n", namespace)
	tally := w.lossless(fmt.Sprintf("%d promotions, %s", n, name), s, func() {
		for i := range n {
			if err := s.Promote(w.t.Context(), fmt.Sprint(i)); err != nil {
				w.t.Fatal(err)
			}
		}
	})
	if len(tally.Responses) < 2*n {
		w.t.Errorf("%d Pods have responded in %d promotions, want two of each", len(tally.Responses), n)
	}
}
