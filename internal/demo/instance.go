package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Addresses of the demo, as in examples/demo/dataplanes. The web server's application is the demo itself,
// which calls the other services where web's proxy listens for them.
const (
	inboundPort     = 21080
	applicationPort = 21081
	backendURL      = "http://127.20.0.1:21001"
	reportsURL      = "http://127.20.0.1:21002"
)

// instance is one application with its proxy.
type instance struct {
	name      string // of its Dataplane
	service   string
	address   string
	readiness int // the port on which weft-dp answers /ready

	application *process
	proxy       *process // weft-dp, which runs Envoy
}

func newInstances() []*instance {
	return []*instance{
		{name: "web", service: "web", address: "127.20.0.1", readiness: 21091},
		{name: "backend-1", service: "backend", address: "127.20.0.2", readiness: 21092},
		{name: "backend-2", service: "backend", address: "127.20.0.3", readiness: 21093},
		{name: "reports", service: "reports", address: "127.20.0.4", readiness: 21094},
	}
}

// addressesFree fails where another program listens on an address that the demo needs.
func addressesFree(instances []*instance) error {
	taken := func(address string, port int) error {
		if free(address, port) {
			return nil
		}
		return fmt.Errorf("%s is taken, and the demo needs it: is another demo running?", net.JoinHostPort(address, strconv.Itoa(port)))
	}
	for _, in := range instances {
		for _, port := range []int{inboundPort, applicationPort} {
			if err := taken(in.address, port); err != nil {
				return err
			}
		}
		if err := taken("127.0.0.1", in.readiness); err != nil {
			return err
		}
	}
	for _, port := range []int{21001, 21002} {
		if err := taken("127.20.0.1", port); err != nil {
			return err
		}
	}
	return nil
}

// start gives the instance a token and runs its two programs, showing the commands where told to.
func (in *instance) start(ctx context.Context, w *world, show bool) error {
	command := func(name string, args ...string) {
		if show {
			w.console.command(name, args...)
		}
	}
	token := in.name + ".token"
	generate := []string{"generate", "dataplane-token", "--name", in.name, "--valid-for", "24h"}
	text, err := w.quietly(ctx, generate...)
	if err != nil {
		return err
	}
	command("weft", append(generate, ">", token)...)
	if err := os.WriteFile(filepath.Join(w.dir, token), []byte(text), 0o600); err != nil {
		return err
	}
	return in.run(w, token, command)
}

// run starts the application and weft-dp.
func (in *instance) run(w *world, token string, command func(string, ...string)) (err error) {
	serve := []string{"demo", "service", "--name", in.service, "--instance", in.name,
		"--listen", net.JoinHostPort(in.address, strconv.Itoa(applicationPort))}
	command("weft", append(serve, "&")...)
	if in.application, err = w.processes.start(in.name, nil, w.options.Weft, serve...); err != nil {
		return err
	}
	proxy := []string{"run",
		"--cp-address", w.plane.server(), "--ca-cert-file", "control-plane/ca.crt",
		"--dataplane-file", "dataplanes/" + in.name + ".yaml", "--dataplane-token-file", token,
		"--readiness-port", strconv.Itoa(in.readiness), "--envoy", w.options.Envoy}
	command("weft-dp", append(proxy, "&")...)
	in.proxy, err = w.processes.start("weft-dp of "+in.name, nil, w.options.WeftDP, proxy...)
	return err
}

// awaitReady waits until weft-dp says that the instance serves.
func (in *instance) awaitReady(ctx context.Context) error {
	ready := fmt.Sprintf("http://127.0.0.1:%d/ready", in.readiness)
	return eventually(ctx, in.name+" serves", func(ctx context.Context) error { return answersOK(ctx, ready) })
}

// kill ends the application, Envoy and weft-dp at the same moment.
func (in *instance) kill(w *world) { w.processes.kill(in.application, in.proxy) }
