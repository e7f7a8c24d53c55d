package node_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

var promotions = flag.Int("promotions", 2, "number of blue/green promotions by Argo Rollouts with ignored labels, "+
	"and as many without")

var argo struct {
	sync.Once
	err error
}

// startArgo starts Argo Rollouts, which the first test with it does.
func (w *world) startArgo() {
	w.t.Helper()
	argo.Do(func() { argo.err = w.StartArgo(w.t.Context()) })
	if argo.err != nil {
		w.t.Fatal(argo.err)
	}
}

// promotionModels are the values of the chart with which Pods are promoted.
var promotionModels = []struct {
	name   string
	values []string
}{
	{"ignored labels set", []string{shop.IgnoredLabels}}, {"ignored labels not set", nil},
}

// TestDrillPromotions promotes new Pods under traffic, with the ignored labels that the documentation of blue/green
// deployments has, and without. No request fails.
func TestDrillPromotions(t *testing.T) {
	w := mesh(t)
	w.startArgo()
	w.restore()
	for _, model := range promotionModels {
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
	w.servedBy(2*n, w.lossless(fmt.Sprintf("%d promotions, %s", n, name), s, func() { w.promotions(s, name, n) }))
}

// promotions promotes new Pods n times.
func (w *world) promotions(s *shop.Shop, name string, n int) {
	w.t.Helper()
	for i := range n {
		if err := s.Promote(w.t.Context(), fmt.Sprint(name, " ", i)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// servedBy fails the test unless a number of servers have responded: two of each promotion.
func (w *world) servedBy(servers int, tally traffic.Tally) {
	w.t.Helper()
	if len(tally.Responses) < servers {
		w.t.Errorf("%d servers have responded, want %d", len(tally.Responses), servers)
	}
}
