package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weft/kind"
)

// TestHostileANameKeepsNoServiceOut: a user of a zone chose the names that the copies of another zone's service, and of
// a policy of global, have there. The copies have longer names, requests reach the service, the policy denies them, and
// `weft check` names both owners.
func TestHostileANameKeepsNoServiceOut(t *testing.T) {
	a := newAttack(t, "a user of a zone chooses the name of another owner's copy")
	f := newFederation(t)
	zones := f.join(nil, "east", "west")
	east, west := zones[0], zones[1]
	f.obtain(zones, crossZoneRules)
	squatted := kind.SyncedName(&kind.MeshServices.Info, "default", "web", kind.Owner{Zone: "east"})
	west.apply(service(squatted, "{port: 80}"))
	east.apply(fmt.Sprintf("type: MeshTrafficPermission\nmesh: default\nname: %s\nspec: {rules: [{default: {allow: "+
		"[{spiffeID: {type: Exact, value: spiffe://default.east.mesh.local/workload/none}}]}}]}\n",
		kind.SyncedName(&kind.MeshTrafficPermissions.Info, "default", "no-client", kind.Owner{})))
	east.apply(service("web", webPorts))
	east.service(3, 18080, "web-1")
	east.proxies("default", webServer("web-1", 3), ingress("ingress-1", 10))
	west.proxy("default", "client", webClient("client", 3, "east", 80, 81, 82))
	west.passes(west.outbound(3, "http"), "web-1")
	a.repelled()

	found, _ := west.weft("check") // its status is that of all findings
	want := fmt.Sprintf("it is web of zone east, and %s of zone west has its key", squatted)
	if !strings.Contains(found, want) {
		a.fellTo("weft check lacks %q: %s", want, found)
	}
	f.global.apply("type: MeshTrafficPermission\nmesh: default\nname: no-client\nspec: {rules: [{default: {deny: " +
		"[{spiffeID: {type: Exact, value: spiffe://default.west.mesh.local/workload/client}}]}}]}\n")
	east.eventually("the policy of global denies the client", func() error {
		return west.denied(west.outbound(3, "http"))
	})
	a.repelled()
}
