package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The addresses of the demo, as in examples/demo. The demo itself is the client application of web: it sends requests
// to the outbound addresses of web's proxy.
const (
	inboundPort     = 21080
	applicationPort = 21081
	ingressPort     = 21090
	egressPort      = 21070

	webAddress     = "127.0.1.11"
	backendURL     = "http://" + webAddress + ":21001" // of web's own zone
	reportsURL     = "http://" + webAddress + ":21002"
	acrossURL      = "http://" + webAddress + ":21003" // backend of the other zone
	anywhereURL    = "http://" + webAddress + ":21004" // backend of any zone
	outURL         = "http://" + webAddress + ":21005" // the partner outside of the mesh
	reportsAddress = "127.0.1.14"
	reportsOutURL  = "http://" + reportsAddress + ":21005" // the partner, for reports

	partner        = "partner"
	partnerAddress = "127.0.3.11"
)

// instance is one application with its proxy, or a zone ingress or egress, which is a proxy alone.
type instance struct {
	zone      string
	name      string // of its Dataplane
	service   string // empty: a zone proxy
	port      int    // at which a zone proxy listens
	address   string
	readiness int // the port on which weft-dp serves /ready

	plane     *plane // of its zone
	processes []*program
}

func newInstances() []*instance {
	return []*instance{
		{zone: east, name: "web", service: "web", address: webAddress, readiness: 21091},
		{zone: east, name: "backend-1", service: "backend", address: "127.0.1.12", readiness: 21092},
		{zone: east, name: "backend-2", service: "backend", address: "127.0.1.13", readiness: 21093},
		{zone: east, name: "reports", service: "reports", address: reportsAddress, readiness: 21094},
		{zone: east, name: "ingress-3", port: ingressPort, address: "127.0.1.15", readiness: 21098},
		{zone: east, name: "egress-1", port: egressPort, address: "127.0.1.16", readiness: 21099},
		{zone: west, name: "backend-3", service: "backend", address: "127.0.2.11", readiness: 21095},
		{zone: west, name: "ingress-1", port: ingressPort, address: "127.0.2.12", readiness: 21096},
		{zone: west, name: "ingress-2", port: ingressPort, address: "127.0.2.13", readiness: 21097},
	}
}

// instance returns the instance of a name. It panics if there is none.
func (w *world) instance(name string) *instance {
	for _, in := range w.instances {
		if in.name == name {
			return in
		}
	}
	panic("demo: there is no instance " + name)
}

// listens returns the ports on which programs of the instance listen.
func (in *instance) listens() []int {
	switch in.service {
	case "":
		return []int{in.port}
	case "web":
		return []int{inboundPort, applicationPort, 21001, 21002, 21003, 21004, 21005}
	case "reports":
		return []int{inboundPort, applicationPort, 21005}
	}
	return []int{inboundPort, applicationPort}
}

// addressesFree returns an error if another program listens on an address of the demo.
func addressesFree(instances []*instance) error {
	needed := []string{application(partnerAddress)}
	for _, in := range instances {
		needed = append(needed, net.JoinHostPort("127.0.0.1", strconv.Itoa(in.readiness)))
		for _, port := range in.listens() {
			needed = append(needed, net.JoinHostPort(in.address, strconv.Itoa(port)))
		}
	}
	for _, address := range needed {
		if !free(address) {
			return fmt.Errorf("%s is taken, and the demo needs it: is another demo running?", address)
		}
	}
	return nil
}

// application returns the address and port on which the application of a machine listens.
func application(address string) string {
	return net.JoinHostPort(address, strconv.Itoa(applicationPort))
}

// startPartner starts an application outside of the mesh, without a proxy.
func (w *world) startPartner() error {
	serve := []string{"demo", "service", "--name", partner, "--instance", partner, "--listen",
		application(partnerAddress)}
	w.console.Command("weft", append(serve, "&")...)
	_, err := w.processes.start(partner, nil, w.options.Weft, serve...)
	return err
}

// start writes a token for the instance and starts its programs. With show, it prints the commands.
func (in *instance) start(ctx context.Context, w *world, show bool) error {
	command := func(name string, args ...string) {
		if show {
			w.console.Command(name, args...)
		}
	}
	token := in.zone + "/" + in.name + ".token"
	generate := []string{"generate", "dataplane-token", "--dataplane-file", in.dataplane(), "--valid-for", "24h"}
	text, err := in.plane.quietly(ctx, generate...)
	if err != nil {
		return err
	}
	command("weft", append(append([]string{"--api", in.plane.api()}, generate...), ">", token)...)
	if err := os.WriteFile(filepath.Join(w.dir, token), []byte(text), 0o600); err != nil {
		return err
	}
	return in.run(w, token, command)
}

// dataplane returns the file of the instance's Dataplane.
func (in *instance) dataplane() string { return in.zone + "/dataplanes/" + in.name + ".yaml" }

// run starts the application, if the instance has one, and weft-dp.
func (in *instance) run(w *world, token string, command func(string, ...string)) error {
	in.processes = nil
	if in.service != "" {
		serve := []string{"demo", "service", "--name", in.service, "--instance", in.name,
			"--listen", application(in.address)}
		command("weft", append(serve, "&")...)
		if err := in.launch(w, in.name, w.options.Weft, serve); err != nil {
			return err
		}
	}
	proxy := []string{"run",
		"--cp-address", in.plane.server(), "--ca-cert-file", in.zone + "/data/ca.crt",
		"--dataplane-file", in.dataplane(), "--dataplane-token-file", token,
		"--readiness-port", strconv.Itoa(in.readiness), "--envoy", w.options.Envoy}
	command("weft-dp", append(proxy, "&")...)
	return in.launch(w, "weft-dp of "+in.name, w.options.WeftDP, proxy)
}

func (in *instance) launch(w *world, name, program string, args []string) error {
	p, err := w.processes.start(name, nil, program, args...)
	if err == nil {
		in.processes = append(in.processes, p)
	}
	return err
}

// awaitReady waits until weft-dp reports the instance as ready.
func (in *instance) awaitReady(ctx context.Context) error {
	ready := fmt.Sprintf("http://127.0.0.1:%d/ready", in.readiness)
	return eventually(ctx, in.name+" is ready", func(ctx context.Context) error { return getOK(ctx, ready) })
}

// restart starts killed instances again and waits until they are ready.
func (w *world) restart(ctx context.Context, instances ...*instance) error {
	for _, in := range instances {
		if err := in.start(ctx, w, false); err != nil {
			return err
		}
	}
	for _, in := range instances {
		if err := in.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends the application, Envoy and weft-dp of instances at the same moment.
func (w *world) kill(instances ...*instance) {
	var victims []*program
	for _, in := range instances {
		victims = append(victims, in.processes...)
	}
	w.processes.kill(victims...)
}
