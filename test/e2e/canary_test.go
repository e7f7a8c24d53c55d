package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weft/internal/traffic"
)

// marked is a MeshHTTPRoute that marks every response of the service "web" to the workload "shop".
const marked = `
type: MeshHTTPRoute
mesh: default
name: marked
spec:
  targetRef: {kind: Dataplane, labels: {app: shop}}
  to:
  - targetRef: {kind: MeshService, name: web}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      default:
        filters:
        - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-marked, value: "yes"}]}}
`

// TestDrillCanary: under load, a canary policy reaches the proxies of its selector alone, and after its promotion every
// proxy of its target. A proxy outside the target never gets it, and no request fails.
func TestDrillCanary(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	labels := map[string]string{"v1": "{app: shop, version: v1, kuma.io/workload: v1}",
		"v2": "{app: shop, version: v2, kuma.io/workload: v2}", "other": "{version: v2, kuma.io/workload: other}"}
	urls := map[string]string{}
	var sends []traffic.Send
	for i, name := range []string{"v1", "v2", "other"} {
		host := 3 + i
		dataplane := caller(name, host, "tags: {kuma.io/service: web}")
		w.proxy("default", name, strings.Replace(dataplane, "{kuma.io/workload: "+name+"}", labels[name], 1))
		urls[name] = fmt.Sprintf("http://%s:10001/", w.address(host))
		w.eventually("a request of "+name+" passes", func() error { return get(urls[name]) })
		sends = append(sends, traffic.Get(urls[name]))
	}
	d := w.drill("a canary policy is applied and promoted", inTurn(sends...))
	// reaches waits until the responses to some clients are marked. Once a later policy has reached every client, those
	// to the others are not.
	reaches := func(when string, want map[string]bool, later int) {
		t.Helper()
		for name, marked := range want {
			if marked {
				w.eventually(when+" "+name+" has the policy", func() error { return hasMark(urls[name], true) })
			}
		}
		w.apply(fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: later\nspec: {to: [{targetRef: {kind: Mesh}, "+
			"default: {http: {requestTimeout: %ds}}}]}\n", later))
		for name := range urls {
			w.configured(name, fmt.Sprintf(`"timeout": "%ds"`, later))
		}
		d.more(50)
		for name := range urls {
			if err := hasMark(urls[name], want[name]); err != nil {
				t.Errorf("%s %s: %v", when, name, err)
			}
		}
	}
	out, err := w.weftWith(marked, "diff", "-f", "-", "--canary", "version=v2")
	if err != nil || !strings.Contains(out, "1 proxy changes: v2\n") {
		t.Errorf("the diff of the canary: %v\n%s", err, out)
	}
	if out, err := w.weftWith(marked, "apply", "-f", "-", "--canary", "version=v2"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reaches("as a canary", map[string]bool{"v2": true}, 101)
	if out, err := w.weft("promote", "meshhttproute", "marked"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reaches("after the promotion", map[string]bool{"v1": true, "v2": true}, 102)
	d.end()
}

// hasMark returns an error where a response is marked and should not be, or the reverse.
func hasMark(url string, want bool) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	response.Body.Close()
	if got := response.Header.Get("x-marked") == "yes"; got != want || response.StatusCode != http.StatusOK {
		return fmt.Errorf("the response %s is marked: %v, want %v", response.Status, got, want)
	}
	return nil
}
