package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weft/internal/testwait"
	"weft/internal/traffic"
	"weft/kind"
	"weft/resource"
)

// A user who may write policies makes the proxies of others pay, by one value of a policy: memory, CPU, or so many
// retries. A value at its bound costs little.
func TestHostilePoliciesCostNoProxyMuch(t *testing.T) {
	const most = 150 << 20 // bytes, of all policies at their bounds together
	a := newAttack(t, "a user who may write policies fills the memory of proxies, or stops them, by a value of one")
	w := newInstance(t, int(subnets.Add(1)), "KUMA_ACCESS_STATIC_WRITE_GROUPS=writers,mesh-system:admin")
	w.startPlane()
	w.apply(secured)
	user, err := w.weft("generate", "user-token", "--name", "u", "--group", "writers", "--valid-for", "1h")
	if err != nil {
		t.Fatal(err)
	}
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	client := w.envoyOf(w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}")))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	idle := peakMemory(t, client)
	bystander := traffic.Start(20, testwait.Timeout, traffic.Get(url))

	write := func(of *resource.Info, conf string) int {
		return w.putAs(user, "/meshes/default/"+of.Plural+"/p", fmt.Sprintf("type: %s\nmesh: default\nname: p\n"+
			"spec: {to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", of.Name, conf))
	}
	regexes := strings.Repeat(`{name: x-a, type: RegularExpression, value: "(a{30}){30}"}, `, 32)
	for _, conf := range []struct {
		of        *resource.Info
		above, at string
	}{
		{&kind.MeshLoadBalancingStrategies.Info, "loadBalancer: {type: RingHash, ringHash: {minRingSize: 8000000}}",
			"loadBalancer: {type: RingHash, ringHash: {minRingSize: 1048576}}"},
		{&kind.MeshLoadBalancingStrategies.Info,
			"loadBalancer: {type: LeastRequest, leastRequest: {choiceCount: 4294967295}}",
			"loadBalancer: {type: RingHash, leastRequest: {choiceCount: 100}, ringHash: {minRingSize: 1048576}}"},
		{&kind.MeshHealthChecks.Info, "interval: 1ms, tcp: {}", "interval: 100ms, tcp: {}"},
		{&kind.MeshRetries.Info, "http: {numRetries: 1000}", "http: {numRetries: 100}"},
		{&kind.MeshRetries.Info, "http: {numRetries: 1000, retriableRequestHeaders: [" + regexes + "]}",
			"http: {numRetries: 3, retriableRequestHeaders: [" + regexes + "]}"},
		{&kind.MeshCircuitBreakers.Info, "outlierDetection: {interval: 1ms, detectors: {totalFailures: {}}}",
			"outlierDetection: {interval: 100ms, detectors: {totalFailures: {}}}"},
	} {
		if status := write(conf.of, conf.above); status == http.StatusBadRequest {
			a.repelled()
		} else {
			a.fellTo("%s with %s: status %d", conf.of.Name, conf.above, status)
		}
		if status := write(conf.of, conf.at); status >= 300 {
			t.Fatalf("%s with %s: status %d, so nothing is measured", conf.of.Name, conf.at, status)
		}
	}
	w.eventually("the policies have propagated", func() error {
		if n := w.counter("client", `cluster\..*\.health_check\.success`); n < 10 {
			return fmt.Errorf("%d checks", n)
		}
		return nil
	})
	sent := bystander.Begun()
	w.eventually("requests pass beside them", func() error {
		if n := bystander.Begun() - sent; n < 40 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	tally := bystander.Stop()
	failed, causes := tally.Failures()
	peak := peakMemory(t, client)
	if failed > 0 || peak > idle+most {
		a.fellTo("at their bounds the policies fail %d requests (%s), and the client's proxy takes %d MiB more", failed,
			causes, (peak-idle)>>20)
	} else {
		a.repelled()
	}
	t.Logf("%d requests, %d failed; the client's proxy had at most %d MiB, %d before", bystander.Begun(), failed,
		peak>>20, idle>>20)
}
