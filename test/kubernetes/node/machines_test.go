package node_test

import (
	"fmt"
	"net/http"
	"path/filepath"

	"weft/internal/envoy/envoytest"
	"weft/internal/process"
	"weft/internal/testwait"
	"weft/test/kubernetes/shop"
)

// Addresses of machines in the network of the node.
const (
	globalMachine  = "172.31.0.1"
	spireMachine   = "172.31.0.2" // of the SPIRE server
	serverMachine  = "172.31.0.3"
	ingressMachine = "172.31.0.4"
	clientMachine  = "172.31.0.5"
	egressMachine  = "172.31.0.6"
	anotherMachine = "172.31.0.7"
	olderMachine   = "172.31.0.8" // of a ZoneEgress
	balancer       = "172.31.0.9"
	otherMachine   = "172.31.0.10" // of a client without permission
)

const (
	resolverAddress = globalMachine + ":5353" // of the resolver of all zones
	drainTime       = "2s"                    // in which their clients leave the former address of a host name
)

// machinesConfig moves the ports of the second control plane of the node's network.
const machinesConfig = `{apiServer: {http: {port: 15681}, https: {port: 0}}, dpServer: {port: 15678}, ` +
	`diagnostics: {serverPort: 15680}, ` +
	`hostNames: {resolvers: ["` + resolverAddress + `"], drainTime: ` + drainTime + `}}`

// machines are a global control plane and a zone of machines, whose programs have addresses of their own in the network
// of the node. Its cluster is the zone default.
type machines struct {
	*federation
	plane *process.Process // the control plane of the machines
}

// startMachines starts global, and the zone of machines.
func (w *world) startMachines() *machines {
	w.t.Helper()
	m := &machines{federation: w.startGlobal()}
	for _, address := range []string{serverMachine, ingressMachine, clientMachine, egressMachine, anotherMachine,
		olderMachine, otherMachine} {
		m.address(address)
	}
	m.plane = m.program("machines", shop.Weft(), "cp", "run", "--config-file", m.file("machines.yaml", machinesConfig),
		"--zone", "machines", "--data-dir", m.path("machines/data"), "--global-address",
		"grpcs://"+globalMachine+":5685", "--global-ca-file", m.path("global/data/ca.crt"), "--zone-token-file",
		m.token("machines"))
	m.awaitAPI(machinesAPI)
	return m
}

// agent is weft-dp on a machine.
type agent struct {
	*process.Process
	readiness string // the port
}

// agent starts weft-dp, and returns when its proxy is ready.
func (m *machines) agent(name, readiness, document, token string, args ...string) agent {
	m.t.Helper()
	a := agent{m.program(name, filepath.Join(filepath.Dir(shop.Weft()), "weft-dp"), append([]string{"run",
		"--cp-address", "https://127.0.0.1:15678", "--ca-cert-file", m.path("machines/data/ca.crt"), "--dataplane-file",
		document, "--dataplane-token-file", m.file(name+".token", token), "--envoy", m.envoy(name), "--readiness-port",
		readiness}, args...)...), readiness}
	m.ready(a)
	return a
}

// envoy is the Envoy of a proxy. One with a certificate of SPIRE has a path of its own, by which SPIRE attests the
// workload of this name.
func (m *machines) envoy(name string) string {
	m.t.Helper()
	shared := envoytest.Binary(m.t)
	if m.spire == nil {
		return shared
	}
	own := m.path("envoy-" + name)
	envoytest.Copy(m.t, shared, own)
	m.spire.entry(spireMachines, "spiffe://"+spireDomain+"/workload/"+name, "unix:path:"+own)
	return own
}

// ready waits until the proxy of an agent is ready.
func (m *machines) ready(a agent) {
	m.t.Helper()
	m.must(a.Ready(testwait.Timeout, "http://127.0.0.1:"+a.readiness+"/ready", http.DefaultClient))
}

// again starts an agent again, and returns when its proxy is ready.
func (m *machines) again(a agent) {
	m.t.Helper()
	m.must(a.Start())
	m.ready(a)
}

// dataplane is the Dataplane of a machine.
func dataplane(name, networking string) string {
	return fmt.Sprintf("{type: Dataplane, mesh: default, name: %[1]s, labels: {kuma.io/workload: %[1]s}, "+
		"networking: %[2]s}", name, networking)
}

// ingressAt is the zone ingress of the machines, with the host that other zones dial.
func ingressAt(host string) string {
	return "{zoneIngress: {address: " + ingressMachine + ", port: 10001, advertisedAddress: " + host +
		", advertisedPort: 10001}}"
}

// proxy starts weft-dp with a Dataplane, and returns when it is ready.
func (m *machines) proxy(name, readiness, networking string) agent {
	m.t.Helper()
	document := m.file(name+".dp.yaml", m.of(dataplane(name, networking)))
	return m.agent(name, readiness, document, m.weft(machinesAPI, "generate", "dataplane-token", "--mesh",
		m.meshName(), "--dataplane-file", document))
}

// server starts a server of the service web, whose responses have a name, with its proxy.
func (m *machines) server(name, readiness, address, port string) agent {
	m.t.Helper()
	m.program("app-"+name, "/usr/bin/env", "PORT="+port, "NAME="+name, filepath.Join(m.Dir, "application"), "serve")
	return m.proxy(name, readiness, "{address: "+address+", inbound: [{port: 20080, servicePort: "+port+
		", serviceAddress: 127.0.0.1, protocol: http, tags: {kuma.io/service: web}}]}")
}
