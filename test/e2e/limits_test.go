package e2e

import (
	"fmt"
	"regexp"

	"weft/internal/traffic"
)

// reloads counts the contents of slots and the routes that a proxy has taken.
const reloads = `[^ ]*\.config_reload`

// editRateLimit edits a limit far above the load, also by caller. Limits begin and end. Then a limit below the load
// takes effect.
func (w *world) editRateLimit(url string) {
	w.editUnder(traffic.Get(url), "web-1", "a MeshRateLimit", reloads, func(i int) string {
		limit := fmt.Sprintf("local: {http: {requestRate: {num: %d, interval: 1s}}, tcp: {connectionRate: {num: %d, "+
			"interval: 1s}}}", 100_000+i, 100_000+i)
		ofClient := fmt.Sprintf("local: {http: {requestRate: {num: %d, interval: 1s}}}", 50_000+i)
		switch i % 3 {
		case 0:
			return received("MeshRateLimit", everyCallerGets(limit))
		case 1:
			return received("MeshRateLimit", everyCallerGets(limit)+", "+clientGets(ofClient))
		}
		return received("MeshRateLimit", everyCallerGets("local: {http: {disabled: true}, tcp: {disabled: true}}"))
	})
	w.apply(received("MeshRateLimit", everyCallerGets("local: {http: {requestRate: {num: 100, interval: 1s}}}")+", "+
		clientGets("local: {http: {requestRate: {num: 1, interval: 1h}, onRateLimit: {status: 507}}}")))
	w.eventually("the client is limited", func() error { return gets(url, 507, "local_rate_limited") })
	if out, err := w.weft("inspect", "policies", "--for", "web-1"); err != nil || !regexp.MustCompile(
		`workload/client +MeshRateLimit +local.http.requestRate.num +1 +MeshRateLimit default/t rules\[1\]`).
		MatchString(out) {
		w.t.Errorf("the effective value is not shown: %v\n%s", err, out)
	}
}

// editFaultInjection edits faults that fail no request, also by caller. Faults begin and end. Then a fault takes
// effect, and weft check lists its policy.
func (w *world) editFaultInjection(url string) {
	none := func(status int) string {
		return fmt.Sprintf("http: [{abort: {httpStatus: %d, percentage: 0}}]", status)
	}
	w.editUnder(traffic.Get(url), "web-1", "a MeshFaultInjection", reloads, func(i int) string {
		switch i % 3 {
		case 0:
			return received("MeshFaultInjection", everyCallerGets(none(500+i)))
		case 1:
			return received("MeshFaultInjection", everyCallerGets(none(500+i))+", "+clientGets(none(520+i))+", "+
				clientGets("http: [{delay: {value: 1ms, percentage: 50}}]"))
		}
		return received("MeshFaultInjection",
			clientGets("http: [{responseBandwidth: {limit: 1 Gbps, percentage: 100}}]"))
	})
	w.apply(received("MeshFaultInjection", everyCallerGets(none(555))+", "+
		clientGets("http: [{abort: {httpStatus: 507, percentage: 100}}]")))
	w.eventually("the client gets a fault", func() error { return gets(url, 507, "fault filter abort") })
	if out, err := w.weft("inspect", "policies", "--for", "web-1"); err != nil || !regexp.MustCompile(
		`workload/client +MeshFaultInjection +http\[0\] .* MeshFaultInjection default/t rules\[1\]`).MatchString(out) {
		w.t.Errorf("the effective faults are not shown: %v\n%s", err, out)
	}
	if out, _ := w.weft("check"); !regexp.MustCompile(`MeshFaultInjection default/t.*on purpose`).MatchString(out) {
		w.t.Errorf("weft check does not list the policy:\n%s", out)
	}
}
