package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// backends is a service that selects its members by a tag, and one by a label; a third names its member.
var backends = secured + `
---
type: MeshService
mesh: default
name: backend
spec: {selector: {dataplaneTags: {app: backend}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}
---
type: MeshService
mesh: default
name: labeled
spec: {selector: {dataplaneLabels: {matchLabels: {team: pay}}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}
---
type: MeshService
mesh: default
name: named
spec: {selector: {dataplaneRef: {name: backend-2}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}
`

// memberOf returns a Dataplane whose application is at port 18080 of its host.
func memberOf(name, labels string, host int, inbounds ...string) string {
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nlabels: {%s}\nnetworking: {address: NET.%d, "+
		"inbound: [%s]}\n", name, labels, host, strings.Join(inbounds, ", "))
}

// inboundWith returns an inbound at an address, for an application on a host.
func inboundWith(address string, host int, tags string) string {
	return fmt.Sprintf("{port: 20080, address: %s, servicePort: 18080, serviceAddress: NET.%d, protocol: http, tags: "+
		"{%s}}", address, host, tags)
}

// A workload's token makes its holder a server of no other service: neither by a tag, a label or a name that its
// Dataplane states, nor at an address that is not its own.
func TestHostileADataplaneTokenIsNoOtherServer(t *testing.T) {
	a := newAttack(t, "a thief of a workload's token becomes a server of another service")
	w := newWorld(t)
	w.apply(backends)
	w.service(2, 18080, "backend-1")
	const workload = "kuma.io/workload: backend"
	w.proxies("default", memberOf("backend-1", workload+", team: pay", 2, inboundWith("NET.2", 2, "app: backend")),
		caller("client", 3, "backendRef: {kind: MeshService, name: backend, port: 80}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	var invented []string
	for i := range 100 {
		invented = append(invented, fmt.Sprintf("{port: 20080, address: 203.0.113.%d, tags: {app: backend, "+
			"kuma.io/service: pay}}", i+1))
	}
	for _, c := range []struct {
		what, name, labels string
		token              []string
		inbounds           []string
		finding            string
	}{
		{"a tag", "evil-1", "kuma.io/workload: evil", []string{"--name", "evil-1", "--workload", "evil"},
			[]string{inboundWith("NET.4", 4, "app: backend, kuma.io/service: pay")}, "the tag app: backend"},
		{"a label", "evil-2", "kuma.io/workload: evil, team: pay", []string{"--name", "evil-2", "--workload", "evil"},
			[]string{inboundWith("NET.4", 4, "")}, "the label team: pay"},
		{"a name", "backend-2", "kuma.io/workload: evil", []string{"--workload", "evil"},
			[]string{inboundWith("NET.4", 4, "")}, "the name backend-2"},
		{"invented addresses", "evil-3", "kuma.io/workload: evil",
			[]string{"--name", "evil-3", "--workload", "evil", "--tag", "app=backend", "--inbound-tag",
				"kuma.io/service=pay"}, invented, "the address 203.0.113.1"},
	} {
		w.thief(c.name, w.generate(c.token...)).serves("default", memberOf(c.name, c.labels, 4, c.inbounds...))
		w.eventually(c.name+" is found", func() error {
			out, _ := w.weft("check")
			_, about, _ := strings.Cut(out, "Dataplane default/"+c.name+": it is no member")
			if about, _, _ = strings.Cut(about, "\n"); !strings.Contains(about, c.finding) {
				return fmt.Errorf("weft check does not say %q of %s: %s", c.finding, c.name, out)
			}
			return nil
		})
		for range 30 {
			if body, err := fetch(url); err != nil || !strings.HasPrefix(body, "backend-1 ") {
				a.fellTo("by %s, a request is answered %q, %v", c.what, body, err)
			} else {
				a.repelled()
			}
		}
		for _, service := range []string{"backend", "labeled", "named", "pay"} {
			out, _ := w.weft("get", "meshservice", service, "-o", "yaml")
			if service == "pay" && strings.Contains(out, "type: MeshService") || strings.Contains(out, "/evil") {
				a.fellTo("by %s, the MeshService %s is %s", c.what, service, out)
			} else {
				a.repelled()
			}
		}
	}
}

// A member whose token does not vouch for it joins with the token that the finding names, without another registration.
func TestAMemberJoinsWithTheTokenOfTheFinding(t *testing.T) {
	w := newWorld(t)
	w.apply(backends)
	w.service(2, 18080, "backend-1")
	backend := memberOf("backend-1", "kuma.io/workload: backend", 2, inboundWith("NET.2", 2, "app: backend"))
	p, ready := w.beginWith(w.machine, "backend-1", backend, w.token("default", "backend-1", "--workload", "backend"))
	w.ready(w.machine, p, ready)
	w.proxies("default", caller("client", 3, "backendRef: {kind: MeshService, name: backend, port: 80}"))
	command := ""
	w.eventually("the member is found", func() error {
		out, _ := w.weft("check", "-o", "json")
		found := regexp.MustCompile("`weft (generate dataplane-token [^`]*--inbound-tag app=backend[^`]*)`").
			FindStringSubmatch(out)
		if found == nil {
			return fmt.Errorf("weft check names no command: %s", out)
		}
		command = found[1]
		return nil
	})
	p.Kill()
	p, ready = w.beginWith(w.machine, "backend-1", backend, w.generate(strings.Fields(command)[2:]...))
	w.ready(w.machine, p, ready)
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	if out, _ := w.weft("check"); strings.Contains(out, "member-unvouched") {
		t.Errorf("weft check still reports the member: %s", out)
	}
}
