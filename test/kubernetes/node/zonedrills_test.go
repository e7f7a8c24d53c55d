package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/rest"
	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

// TestDrillZones: a cluster and a zone of machines change and fail, while Pods and machines call the services of each
// other and of both. No request fails.
func TestDrillZones(t *testing.T) {
	mesh(t).startArgo()
	const namespace = "zone-drills"
	z := openZones(t, namespace, shop.Rollout(namespace, "web", 2), "rollout/web",
		"jsonpath={.status.phase}=Healthy")
	t.Cleanup(z.collect)
	for _, model := range promotionModels {
		z.run(model.name, func() {
			z.joinCluster(z.world, append([]string{nodePort}, model.values...)...)
			name := fmt.Sprintf("zones: %d promotions, %s", *promotions, model.name)
			tally := z.losslessFlows(name, z.flows(), func() { z.promotions(z.shop, model.name, *promotions) })
			z.servedBy(2**promotions+1, tally) // and the machine
		})
	}
	for _, d := range []struct {
		name  string
		flows []flow
		event func()
	}{
		{"the servers of the cluster go away, and come back", []flow{z.toMachine, z.podToBoth, z.machineToBoth},
			z.emptyCluster},
		{"the server of the machines goes away, and comes back",
			[]flow{z.toPod, z.inCluster, z.podToBoth, z.machineToBoth}, z.emptyMachines},
		{"SNIs get another format, and the former one again", z.flows(), z.migrateSNIs},
		{"the load balancer of a cluster has a host name, which moves, and gets another one", z.flows(),
			z.moveClustersLoadBalancer},
		{"the load balancer of machines has a host name, which moves, and gets another one", z.flows(),
			z.moveMachinesLoadBalancer},
		{"the address of a zone ingress changes", z.flows(), z.moveIngress},
		{"requests take zone egresses", z.flows(), z.useEgresses},
		{"zone egresses of every mesh take over, and give way", z.flows(), z.moveEgresses},
		{"requests take no zone egress any more", z.flows(), z.useNoEgresses},
		{"the global control plane is killed", z.flows(), z.killGlobal},
		{"the control plane of the cluster is killed", z.flows(), z.killClusterPlane},
		{"the control plane of the machines is killed", z.flows(), z.killMachinesPlane},
		// The last one: connections keep the SPIFFE ID with which they were opened.
		{"all proxies get another MeshIdentity, and the former one again", z.inBothIdentities(), z.changeIdentities},
	} {
		z.run(d.name, func() {
			z.losslessFlows("zones: "+d.name, d.flows, func() {
				d.event()
				z.reached(d.flows...)
				z.more(d.flows)
			})
		})
	}
}

// more returns when each of these flows, of which this process sends one, has gone on for another second, since some
// effects of a change come after it.
func (w *world) more(flows []flow) {
	w.t.Helper()
	for _, f := range flows {
		sent, ok := f.stream.(*localStream)
		if !ok {
			continue
		}
		enough := sent.run.Begun() + int64(drillLoad().PerSecond/len(flows))
		w.eventually("more requests are sent", func(context.Context) error {
			if n := enough - sent.run.Begun(); n > 0 {
				return fmt.Errorf("%d are missing", n)
			}
			return nil
		})
		return
	}
	w.t.Error("this process sends none of the flows")
}

// losslessFlows sends the load of drills, in equal shares by these flows, during the event that the name states. It
// fails the test where a request failed, and returns the results of all.
func (w *world) losslessFlows(name string, flows []flow, event func()) (all traffic.Tally) {
	w.t.Helper()
	return w.losslessFlowsAt(drillLoad(), name, flows, event)
}

// losslessFlowsAt is the same with another load.
func (w *world) losslessFlowsAt(load shop.Load, name string, flows []flow, event func()) (all traffic.Tally) {
	w.t.Helper()
	load.PerSecond /= len(flows)
	defer func() { w.verdict(name, all) }() // also where the event ends the test
	for _, f := range flows {
		if err := f.stream.Start(w.t.Context(), load); err != nil {
			w.t.Fatal(err)
		}
		defer func() {
			tally, err := f.stream.Stop(context.Background())
			if err == nil {
				tally, err = shop.Check(tally, f.check)
			}
			if failed, causes := tally.Failures(); failed > 0 {
				err = errors.Join(err, fmt.Errorf("%d of %d requests failed: %s", failed, tally.Sent, causes))
			}
			if err != nil {
				w.t.Errorf("%s: %v", f.name, err)
			}
			all = all.Plus(tally)
		}()
	}
	event()
	return all
}

// scaleTo returns when an object in a namespace, a Deployment or a Rollout of web, has a number of servers.
func (w *world) scaleTo(object, namespace string, replicas int) {
	w.t.Helper()
	w.kubectl("scale", object, "-n", namespace, "--replicas", fmt.Sprint(replicas))
	if replicas == 0 {
		w.wait("pod", "delete", "-n", namespace, "-l", "app=web")
		return
	}
	w.wait(object, fmt.Sprintf("jsonpath={.status.availableReplicas}=%d", replicas), "-n", namespace)
}

// emptyCluster removes the servers of the cluster, and adds them again.
func (z *zones) emptyCluster() {
	z.scaleTo("rollout/web", z.shop.Namespace, 0)
	z.reached(z.podToBoth.by("machine"))
	z.scaleTo("rollout/web", z.shop.Namespace, 2)
	z.reached(z.podToBoth.by("web"), z.toPod)
}

// emptyMachines stops the server of the machines, and starts it again.
func (z *zones) emptyMachines() {
	z.server.Stop()
	z.reached(z.machineToBoth.by("web"))
	z.again(z.server)
	z.reached(z.machineToBoth.by("machine"), z.toMachine)
}

// migrateSNIs moves the SNIs of all services to the format v2, and back.
func (z *zones) migrateSNIs() {
	for _, format := range []struct{ name, first, former string }{{"v2", "b", "a"}, {"v1", "a", "b"}} {
		z.weft(globalAPI, "sni", "migrate", "--to", format.name)
		z.eventually("all SNIs have the format "+format.name, func(ctx context.Context) error {
			out, err := shop.RunWeft(ctx, z.Node, "--api", globalAPI, "sni", "status")
			if err == nil && !strings.HasPrefix(out, "server names of the format "+format.name+": done\n") {
				err = errors.New(out)
			}
			return err
		})
		for _, kind := range []string{"meshservices", "meshmultizoneservices"} {
			out := z.weft(globalAPI, "get", kind, "-o", "yaml")
			err := errors.Join(contains("value: "+format.first)(out), lacks("value: "+format.former)(out))
			if err != nil {
				z.t.Error(err)
			}
		}
	}
}

// moveIngress gives the ingress of the cluster the address of a load balancer, then one by annotations.
func (z *zones) moveIngress() {
	z.joinCluster(z.world, loadBalancer)
	z.balancedAt(`{"ip":"` + balancer + `"}`)
	z.advertises(balancer + ":10001")
	port := z.ingressPort()
	z.kubectl("patch", "deployment", "kuma-default-ingress", "-n", "kuma-system", "-p",
		`{"spec":{"template":{"metadata":{"annotations":{"kuma.io/ingress-public-address":"`+globalMachine+
			`","kuma.io/ingress-public-port":"`+port+`"}}}}}`)
	z.kubectl("rollout", "status", "deployment/kuma-default-ingress", "-n", "kuma-system", "--timeout", "3m")
	z.advertises(globalMachine + ":" + port)
}

// advertises waits until the machines know an address of the cluster's ingress.
func (z *zones) advertises(address string) {
	z.t.Helper()
	z.dialed(address, machinesAPI, "web."+z.shop.Namespace)
}

// throughEgresses has requests to other zones take zone egresses, or none.
func (z *zones) throughEgresses(enabled bool) {
	z.t.Helper()
	z.put(globalAPI, "routing", fmt.Sprintf("{type: Mesh, name: %s, routing: {zoneEgress: %v}}\n", z.meshName(),
		enabled))
}

// useEgresses has requests take the zone egresses of the mesh.
func (z *zones) useEgresses() {
	z.egress = z.proxy("egress", "19004", "{zoneEgress: {address: "+egressMachine+", port: 10002}}")
	z.throughEgresses(true)
	z.takeOwnEgresses()
}

func (z *zones) useNoEgresses() {
	z.throughEgresses(false)
	z.explained("no egress is used", lacks("zone egress"), lacks("zone egress"))
}

func (z *zones) takeOwnEgresses() {
	z.t.Helper()
	mesh := z.meshName()
	z.explained("the egress of the mesh is used", contains(fmt.Sprintf(" %s.kuma-%s-egress", mesh, mesh)),
		contains(" "+mesh+".egress:"))
}

// moveEgresses has a ZoneEgress in each zone, which serves while the mesh's own egress is away.
func (z *zones) moveEgresses() {
	const own, system, ofPods = "deployment/kuma-default-egress", "kuma-system", "app=kuma-default-egress"
	z.proxiesOfEveryMesh()
	document := z.file("every-mesh.dp.yaml", "{type: ZoneEgress, name: every-mesh, networking: {address: "+olderMachine+
		", port: 10002}}")
	z.agent("every-mesh", "19005", document, z.weft(machinesAPI, "generate", "zone-token", "--zone", "machines",
		"--scope", "egress"), "--proxy-type", "egress")
	z.kubectl("scale", own, "-n", system, "--replicas", "0")
	z.egress.Stop()
	z.wait("pod", "delete", "-n", system, "-l", ofPods)
	z.explained("the egress of every mesh is used", contains(" .kuma-egress-"), contains(" .every-mesh:"))
	z.reached(z.flows()...)
	z.kubectl("scale", own, "-n", system, "--replicas", "1")
	z.again(z.egress)
	z.kubectl("rollout", "status", own, "-n", system, "--timeout", "3m")
	z.takeOwnEgresses()
}

// oneMore adds a server to the cluster, and returns when it responds.
func (z *zones) oneMore(f flow) {
	z.t.Helper()
	before := z.servers(z.shop)
	z.scaleTo("rollout/web", z.shop.Namespace, len(before)+1)
	z.reachedAnother(f, before)
}

// reachedAnother returns when a server responds that is none of these.
func (w *world) reachedAnother(f flow, before []string) {
	w.t.Helper()
	w.eventually(f.name+": a new server responds", func(ctx context.Context) error {
		of, err := f.call(ctx)
		if err == nil && slices.Contains(before, of.Instance) {
			err = fmt.Errorf("%s responds, which was there before", of.Instance)
		}
		return err
	})
}

// killGlobal kills the global control plane, and returns when both zones have what was written there afterwards.
func (z *zones) killGlobal() {
	z.global.Kill()
	z.must(z.global.Start())
	z.awaitAPI(globalAPI)
	z.put(globalAPI, "later", strings.ReplaceAll(multiZone, "NAME", "later"))
	for _, api := range []string{machinesAPI, clusterAPI} {
		z.eventually(api+" has a new service", func(ctx context.Context) error {
			_, err := shop.RunWeft(ctx, z.Node, "--api", api, "get", "meshmultizoneservice", "later")
			return err
		})
	}
}

// killClusterPlane kills the control plane of the cluster, and returns when a new Pod serves the machines.
func (z *zones) killClusterPlane() {
	z.killControlPlane()
	z.oneMore(z.toPod)
}

// killMachinesPlane kills the control plane of the machines, and returns when another machine serves the Pods.
func (z *zones) killMachinesPlane() {
	z.plane.Kill()
	z.must(z.plane.Start())
	z.awaitAPI(machinesAPI)
	z.machines.server("another", "19006", anotherMachine, "18081")
	z.reached(z.toMachine.by("another"))
}

// The MeshIdentity of all Pods, and that of all machines, which takes precedence over the one with fewer labels.
const (
	secondOfPods = `
apiVersion: kuma.io/v1alpha1
kind: MeshIdentity
metadata: {name: second, namespace: kuma-system, labels: {kuma.io/mesh: default}}
spec:
  selector: {dataplane: {matchLabels: {kuma.io/env: kubernetes}}}
  spiffeID: {trustDomain: second.cluster.local}
  provider: {type: Bundled, bundled: {insecureAllowSelfSigned: true, autogenerate: {enabled: true}}}
`
	secondOfMachines = `
type: MeshIdentity
mesh: default
name: second
spec:
  selector: {dataplane: {matchLabels: {kuma.io/env: universal}}}
  spiffeID: {trustDomain: second.machines.local}
  provider: {type: Bundled}
`
)

// second returns the SPIFFE ID that a client has by these.
var second = strings.NewReplacer("default.default.mesh.local", "second.cluster.local", "default.machines.mesh.local",
	"second.machines.local").Replace

// inBothIdentities are all flows, whose clients also have their second SPIFFE ID.
func (z *zones) inBothIdentities() []flow {
	flows := z.flows()
	for i := range flows {
		flows[i].clients = append(flows[i].clients, second(flows[i].clients[0]))
	}
	return flows
}

// changeIdentities gives all proxies another MeshIdentity with another trust domain, and returns them to the former.
func (z *zones) changeIdentities() {
	z.whole.Cleanup(func() { // also where the drill fails
		_, err := z.Kubectl(context.Background(), "", "delete", "meshidentity/second", "-n", "kuma-system",
			"--ignore-not-found")
		if err != nil {
			z.whole.Error(err)
		}
	})
	z.apply(secondOfPods)
	z.put(machinesAPI, "second", secondOfMachines)
	z.certifiedBy("second")
	anew := z.inCluster // a new server gets new connections
	anew.clients = []string{second(anew.clients[0])}
	z.oneMore(anew)
	z.kubectl("delete", "meshidentity/second", "-n", "kuma-system")
	z.weft(machinesAPI, "delete", "meshidentity", "second")
	z.certifiedBy("identity")
	z.oneMore(z.inCluster)
}

// certifiedBy returns when the certificates of all proxies are of a MeshIdentity, in both zones.
func (z *zones) certifiedBy(identity string) {
	z.t.Helper()
	for api, suffix := range map[string]string{machinesAPI: "", clusterAPI: ".kuma-system"} {
		z.eventually("all certificates at "+api+" are of "+identity, func(ctx context.Context) error {
			out, err := shop.RunWeft(ctx, z.Node, "--api", api, "inspect", "meshes", "-o", "json")
			if err != nil {
				return err
			}
			var meshes []rest.MeshInsight
			if err := json.Unmarshal([]byte(out), &meshes); err != nil {
				return err
			}
			for _, m := range meshes {
				for issuer, proxies := range m.MTLS.IssuedBackends {
					if m.Name == "default" && issuer != identity+suffix && proxies.Online > 0 {
						state, err := shop.RunWeft(ctx, z.Node, "--api", api, "get", "meshidentities", "-o", "yaml")
						return fmt.Errorf("%d have one of %s (%v): %s", proxies.Online, issuer, err, state)
					}
				}
			}
			return nil
		})
	}
}
