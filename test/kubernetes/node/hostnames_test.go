package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"weft/test/kubernetes/shop"
	"weft/test/network"
)

// dialed returns when the clients of a control plane dial an ingress of a service at an address, by `weft inspect
// service` with these arguments.
func (f *federation) dialed(address, api string, service ...string) {
	f.t.Helper()
	f.eventually("other zones dial "+address, func(ctx context.Context) error {
		out, err := shop.RunWeft(ctx, f.Node, append([]string{"--api", api, "inspect", "service", "-o", "json"},
			service...)...)
		if err == nil {
			err = contains(address)(out)
		}
		return err
	})
}

// balancedAt provides the Service of a cluster's ingress with a load balancer, as a cloud does: {"ip": "192.0.2.1"}.
func (w *world) balancedAt(address string) {
	w.t.Helper()
	w.kubectl("patch", "service", "kuma-default-ingress", "-n", "kuma-system", "--subresource", "status", "-p",
		`{"status":{"loadBalancer":{"ingress":[`+address+`]}}}`)
}

// ingressPort is the port of a cluster's ingress at its Node.
func (w *world) ingressPort() string {
	w.t.Helper()
	return w.kubectl("get", "service", "kuma-default-ingress", "-n", "kuma-system", "-o",
		"jsonpath={.spec.ports[0].nodePort}")
}

// balance starts a load balancer at a new address, until the end of the test.
func (f *federation) balance(ingress string) (address string, b *network.Forwarder) {
	f.t.Helper()
	f.balancers++
	address = fmt.Sprintf("172.31.1.%d", f.balancers)
	f.address(address)
	listener, err := net.Listen("tcp", address+":10001")
	f.must(err)
	b = network.StartForwarder(listener, func() (net.Conn, error) { return net.Dial("tcp", ingress) })
	f.whole.Cleanup(b.Stop)
	return address, b
}

// moveHostNames has the ingress of a zone advertise a host name, which then resolves to another load balancer, and then
// another host name. A load balancer stops once all clients have left it.
func (f *federation) moveHostNames(zone, ingress string, advertise func(host string)) {
	f.t.Helper()
	var former *network.Forwarder
	first, second := "lb-1."+zone+".example", "lb-2."+zone+".example"
	for _, host := range []string{first, first, second} {
		address, current := f.balance(ingress)
		f.resolver.Set(host, "A", address)
		advertise(host)
		f.eventually("clients follow "+host+" to "+address, func(context.Context) error {
			switch {
			case current.Clients() == 0:
				return errors.New("no client has connected")
			case former != nil && former.Clients() > 0:
				return fmt.Errorf("the former load balancer has %d connections", former.Clients())
			}
			return nil
		})
		if former != nil {
			former.Stop()
		}
		former = current
	}
}

// moveLoadBalancer moves the load balancer in front of a cluster's ingress. A cloud gives it a host name alone.
func (f *federation) moveLoadBalancer(of *world, zone string, advertised func(address string)) {
	f.t.Helper()
	f.joinCluster(of, "controlPlane.zone="+zone, loadBalancer)
	node := of.kubectl("get", "nodes", "-o",
		"jsonpath={.items[0].status.addresses[0].address}")
	f.moveHostNames(zone, net.JoinHostPort(node, of.ingressPort()), func(host string) {
		of.balancedAt(`{"hostname":"` + host + `"}`)
		advertised(host + ":10001")
	})
}

// moveClustersLoadBalancer moves the load balancer of the cluster, whose clients are machines.
func (z *zones) moveClustersLoadBalancer() { z.moveLoadBalancer(z.world, "default", z.advertises) }

// moveMachinesLoadBalancer moves a load balancer in front of the machines, whose clients are Pods.
func (z *zones) moveMachinesLoadBalancer() {
	advertise := func(host string) {
		z.put(machinesAPI, "ingress", dataplane("ingress", ingressAt(host)))
		z.dialed(host+":10001", clusterAPI, "web", "--zone", "machines")
	}
	z.moveHostNames("machines", ingressMachine+":10001", advertise)
	advertise(ingressMachine)
}
