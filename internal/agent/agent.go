// Package agent is the implementation of weft-dp. An agent runs beside one Envoy. It registers the proxy, obtains its
// certificate, relays its configuration, and reports the listeners that serve.
//
// The private key is generated here and never leaves the machine. The agent does not read the configuration that it
// relays. It reports a listener as serving after it has dialed the listener itself. Without a control plane, Envoy
// keeps its configuration. The package depends on package wire and Envoy's protocols, and on no internals of the
// control plane.
//
// The parts share only a few watched values (settings, cert, report):
//
//	keepSession            settings <- control plane; report -> control plane
//	keepCertificates       settings -> cert
//	keepProbing            settings -> health of the application -> report
//	watchSPIRECertificate  the certificate that Envoy has from SPIRE -> cert, report
//	keepProbingListeners   settings, cert -> probe results -> report
//	relay, secrets         Envoy's configuration and its certificate, on a unix socket
//	serveExternal          host names of external services -> the Envoy of a zone egress
//	serveCommands          drain and wait, commands of the Pod's hooks, on a unix socket
//	serveProbes            probes of the kubelet -> the application (ProbeProxy)
//	keepNames              host names of the mesh <- control plane -> the machine's DNS (package nameserver)
//	sendInspection         an inspection request -> a page of Envoy's administration interface
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// Config is the configuration of one agent.
type Config struct {
	ControlPlane  []string // https://HOST:PORT, of each replica
	CAFile        string   // PEM, the CA certificates of the control plane; read for each connection
	ProxyType     ProxyType
	DataplaneFile string // the Dataplane, ZoneIngress or ZoneEgress, YAML or JSON; empty: Mesh and Name
	// Variables are the values of `{{ name }}` in DataplaneFile.
	Variables      map[string]string
	Mesh, Name     string           // of the resource that the control plane writes, for a Pod; ProxyType has its kind
	TokenFile      string           // read for each call, so that it may be replaced
	Envoy          string           // the binary; empty: see findEnvoy
	ReadinessPort  int              // the port of `/ready`; 0: none
	DNSPort        int              // the port of the machine's DNS, if the Dataplane has transparentProxying; 0: none
	DNSResolvers   []netip.AddrPort // for names outside the mesh; empty: the resolvers of /etc/resolv.conf
	EnvoyLogLevel  string           // as Envoy's --log-level
	EnvoyLogLevels string           // as Envoy's --component-log-level; empty: none
	Concurrency    int              // Envoy's worker threads; 0: the number of CPUs
	ControlSocket  string           // the unix socket of [Drain] and [WaitReady]; empty: none
	// EndsLast is true where the applications behind the proxy have ended before SIGTERM, as in the Pod of a native
	// sidecar.
	EndsLast       bool
	ProbeProxy     ProbeProxy
	EnvoyMaxMemory uint64 // bytes of Envoy's heap; 0: see defaultMemory
	Version        string // the version of weft-dp, which the control plane shows
	EnvoyOutput    io.Writer
	Log            *slog.Logger
}

// ProxyType is the value of the flag --proxy-type.
type ProxyType string

// The proxy type names the kind of the registered resource. A Dataplane may be a zone proxy of its mesh too.
const (
	DataplaneProxy ProxyType = "dataplane" // a Dataplane
	IngressProxy   ProxyType = "ingress"   // a ZoneIngress, which serves every mesh
	EgressProxy    ProxyType = "egress"    // a ZoneEgress, which serves every mesh
)

const (
	// drainTimeout bounds the time for which a draining proxy waits for the control plane to report it drained. The
	// control plane does so after at most 30 s for the acks of clients, and the drain time of at most 20 s.
	drainTimeout = 50 * time.Second
	// sessionTimeout bounds the time for which a draining proxy waits for a session. A session shorter than this does
	// not restart the time: a control plane without its store accepts such sessions.
	sessionTimeout = 10 * time.Second
	// finalReportTimeout bounds the time for which the agent of an exited Envoy tries to send its final report.
	finalReportTimeout = time.Second
)

// errCompleted is the cause of the end of an agent whose Pod has no other container that runs.
var errCompleted = errors.New("the other containers of the Pod have ended")

// agent is one run.
type agent struct {
	Config
	control   *controlPlane
	dataplane *resource.Object[kind.Dataplane]
	document  []byte // the content of DataplaneFile
	mesh      string // as the control plane returned it
	name      string

	// end has the agent drain and end, as the end of its context does.
	end context.CancelCauseFunc

	settings       *watched[*wire.Settings] // nil until the first settings arrive
	certs          *workloadCerts
	cert           *watched[*workloadCert] // the certificate of identitySecret; nil until there is one
	statusReporter *statusReporter
	namesReceived  *watched[bool] // the control plane has sent the host names, or does not support them
	ready          *watched[bool]
	// wasReady states that the proxy was ready: Envoy has a version of each listener and route. Only the loop that
	// probes listeners reads and writes it.
	wasReady         bool
	admin            atomic.Pointer[admin] // nil until Envoy is started
	finalReportAcked *watched[bool]        // the control plane has received the final report
	// session is the time since which the session is in use, or the zero time without a session.
	session *watched[time.Time]
	// externalDNS is the address at which a zone egress's Envoy resolves host names, or the zero value on other
	// proxies. It is set before Envoy is started.
	externalDNS netip.AddrPort
}

// Run registers the proxy, starts Envoy, and drains it once ctx ends or the control plane says that the other
// containers of the Pod have ended. An Envoy that exits after it was ready is
// restarted. Run returns nil after a drain, and an [ExitError] if Envoy exited before it was ready, or too often.
func Run(ctx context.Context, c Config) error {
	probes, err := listenReadiness(c.ReadinessPort) // first, so that no early probe of the kubelet fails
	if err != nil {
		return err
	}
	if probes != nil {
		defer probes.Close()
	}
	binary, version, err := findEnvoy(ctx, c.Envoy)
	if err != nil {
		return err
	}
	a, err := newAgent(c, version)
	if err != nil {
		return err
	}
	defer a.control.close()
	ctx, a.end = context.WithCancelCause(ctx)
	defer a.end(nil)
	if a.registers() {
		if a.mesh, a.name, err = a.control.register(ctx, a.document, c.Log); err != nil {
			return err
		}
		c.Log.Info("registered", "mesh", a.mesh, "dataplane", a.name, "controlPlane", a.control)
	}

	// These parts outlive ctx, since draining needs them.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	parts, life := errgroup.WithContext(life)
	defer func() { end(); parts.Wait() }()
	a.serveReadiness(life, parts, probes)
	parts.Go(func() error { return a.keepSession(life) })
	parts.Go(func() error { return a.keepCertificates(life) })
	parts.Go(func() error { return a.keepFamilies(life) })

	if err := a.awaitStart(ctx, life); errors.Is(context.Cause(ctx), errCompleted) {
		return nil
	} else if err != nil {
		return err
	}
	return a.serve(ctx, life, parts, binary)
}

func newAgent(c Config, version string) (*agent, error) {
	document, dataplane, err := dataplaneOf(c)
	if err != nil {
		return nil, err
	}
	control, err := connect(c)
	if err != nil {
		return nil, err
	}
	a := &agent{
		Config: c, control: control, dataplane: dataplane, document: document, mesh: c.Mesh, name: c.Name,
		settings:         watch[*wire.Settings](nil),
		certs:            newWorkloadCerts(),
		statusReporter:   newStatusReporter(rand.Text(), version),
		ready:            watch(false),
		finalReportAcked: watch(false),
		session:          watch(time.Time{}),
	}
	a.statusReporter.setFamilies(MachineFamilies())
	a.cert = a.certs.of(identitySecret)
	a.namesReceived = watch(!a.resolves())
	return a, nil
}

// started reports whether Envoy was started.
func (a *agent) started() bool { return a.admin.Load() != nil }

// registers reports whether the agent registers its resource. The control plane writes that of a Pod.
func (a *agent) registers() bool { return a.document != nil }

// dataplaneOf returns the Dataplane, with its document if the agent registers it.
func dataplaneOf(c Config) ([]byte, *resource.Object[kind.Dataplane], error) {
	switch named := c.Mesh != "" || c.Name != ""; {
	case named && c.DataplaneFile != "":
		return nil, nil, errors.New("--dataplane-file has the mesh and the name; leave out --mesh and --name")
	case named && len(c.Variables) > 0:
		return nil, nil, errors.New("--dataplane-var fills --dataplane-file, which is not given; leave it out")
	case !named:
		return readDataplane(c.DataplaneFile, c.Variables, c.ProxyType)
	}
	if err := c.ProxyType.check(); err != nil {
		return nil, nil, err
	}
	switch ofMesh := c.ProxyType == DataplaneProxy; {
	case ofMesh && (c.Mesh == "" || c.Name == ""):
		return nil, nil, errors.New("--mesh and --name belong together: the Dataplane that the control plane writes")
	case !ofMesh && (c.Mesh != "" || c.Name == ""):
		return nil, nil, fmt.Errorf("--proxy-type %s serves every mesh: write --name without --mesh", c.ProxyType)
	}
	return nil, kind.Dataplanes.Make(c.Mesh, c.Name, kind.Dataplane{}), nil
}

// readDataplane checks the resource as far as possible without the control plane, for an early and exact error.
func readDataplane(file string, variables map[string]string, wanted ProxyType) (
	[]byte, *resource.Object[kind.Dataplane], error) {
	document, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("the Dataplane (--dataplane-file): %w", err)
	}
	if document, err = fill(document, variables); err != nil {
		return nil, nil, fmt.Errorf("%s (--dataplane-file): %w", file, err)
	}
	parsed, err := resource.Parse(document, kind.ByName)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	dataplane, err := proxyOf(parsed, wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("%s (--dataplane-file): %w", file, err)
	}
	if dataplane.Name == "" {
		return nil, nil, fmt.Errorf("%s: name: is required", file)
	}
	return document, dataplane, nil
}

// proxyOf returns the Dataplane. A zone proxy that serves every mesh becomes a Dataplane without a mesh.
func proxyOf(o resource.Any, wanted ProxyType) (*resource.Object[kind.Dataplane], error) {
	if err := wanted.check(); err != nil {
		return nil, err
	}
	dataplane, is := proxyResource(o)
	if is == "" {
		return nil, fmt.Errorf("is a %s, want a Dataplane, a ZoneIngress or a ZoneEgress", o.Key().Kind)
	}
	if is != wanted {
		return nil, fmt.Errorf("is a %s, which runs with --proxy-type %s, not %s", o.Key().Kind, is, wanted)
	}
	return dataplane, nil
}

// check returns an error for a type that does not exist.
func (t ProxyType) check() error {
	if t != DataplaneProxy && t != IngressProxy && t != EgressProxy {
		return fmt.Errorf("--proxy-type is %q, want %s, %s or %s", t, DataplaneProxy, IngressProxy, EgressProxy)
	}
	return nil
}

// proxyResource returns a proxy's resource as a Dataplane, with the proxy type that it needs; "" for a resource of
// another kind.
func proxyResource(o resource.Any) (*resource.Object[kind.Dataplane], ProxyType) {
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		return o, DataplaneProxy
	case *resource.Object[kind.ZoneIngress]:
		return kind.Dataplanes.Make("", o.Name, kind.Dataplane{Networking: *o.Spec.Dataplane()}), IngressProxy
	case *resource.Object[kind.ZoneEgress]:
		return kind.Dataplanes.Make("", o.Name, kind.Dataplane{Networking: *o.Spec.Dataplane()}), EgressProxy
	}
	return nil, ""
}

// awaitStart waits for the settings that Envoy needs to start, and for a certificate if the proxy has an identity,
// unless Envoy obtains it from a SPIRE agent. An Envoy without its certificate would reject connections that it could
// serve a moment later.
func (a *agent) awaitStart(ctx, life context.Context) error {
	waiting, cancel := context.WithCancel(life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	settings, err := a.settings.await(waiting, func(s *wire.Settings) bool { return s != nil })
	if err == nil && settings.Identity != nil && settings.Identity.SpireSocket == "" {
		_, err = a.cert.await(waiting, func(l *workloadCert) bool { return l != nil })
	}
	if err != nil && ctx.Err() == nil {
		return context.Cause(life) // the error of the part that failed
	}
	return err
}

// serve runs Envoy and all parts that need it.
func (a *agent) serve(ctx, life context.Context, parts *errgroup.Group, binary string) error {
	runtimeDir, err := newRuntimeDir()
	if err != nil {
		return err
	}
	defer runtimeDir.remove()
	listener, err := runtimeDir.listen()
	if err != nil {
		return err
	}
	relay := a.newRelay()
	defer relay.Stop()
	parts.Go(func() error { return relay.Serve(listener) })
	for _, serve := range []func(context.Context, *errgroup.Group) error{
		a.serveCommands, a.ProbeProxy.serve,
	} {
		if err := serve(life, parts); err != nil {
			return err
		}
	}
	if err := a.serveNames(life, parts); err != nil {
		return err
	}
	if err := a.serveExternal(life, parts); err != nil {
		return err
	}
	parts.Go(func() error { return a.keepProbing(life) })
	for crashes := (crashes{}); ; {
		wasReady, err := a.runEnvoy(ctx, life, runtimeDir, binary)
		var died *ExitError
		switch {
		case !errors.As(err, &died):
			return err
		case !wasReady, ctx.Err() != nil, !crashes.recordCrash(time.Now()):
			a.sendFinalReport(life)
			return err
		}
		a.Log.Error("Envoy died and is started again", "how", died)
	}
}

// runEnvoy runs one Envoy until it exits, which is an [ExitError], or until ctx ends and Envoy has drained. wasReady
// reports whether Envoy was ready when it exited.
func (a *agent) runEnvoy(ctx, life context.Context, runtimeDir *runtimeDir, binary string) (wasReady bool, err error) {
	settings, _ := a.settings.load()
	bootstrap, err := a.bootstrap(runtimeDir, settings)
	if err != nil {
		return false, err
	}
	envoy, err := startEnvoy(binary, bootstrap, settings.DrainSeconds, a.Config)
	if err != nil {
		return false, err
	}
	defer envoy.kill()
	admin := newAdmin(runtimeDir, settings)
	a.admin.Store(admin)
	watching, stop := context.WithCancel(life)
	var watchers sync.WaitGroup
	watchers.Go(func() { a.keepProbingListeners(watching, admin) })
	watchers.Go(func() { a.watchSPIRECertificate(watching, admin) })
	defer func() { stop(); watchers.Wait() }()

	select {
	case <-envoy.done:
		stop()
		watchers.Wait()
		wasReady, _ = a.ready.load()
		a.ready.store(false)
		a.statusReporter.clearProbeResults()
		return wasReady, fmt.Errorf("Envoy ended: %w", envoy.exit())
	case <-life.Done():
		return true, context.Cause(life)
	case <-ctx.Done():
		a.Log.Info("draining")
		a.drain(life, envoy, admin)
		return true, nil
	}
}

// sendFinalReport reports that no listener serves any more, so that clients do not have to detect it.
func (a *agent) sendFinalReport(life context.Context) {
	ctx, cancel := context.WithTimeout(life, finalReportTimeout)
	defer cancel()
	a.statusReporter.finish()
	a.finalReportAcked.await(ctx, func(heard bool) bool { return heard })
}

// drain stops the proxy without a lost request: it waits until no client sends requests to it, and then until the
// requests in flight have completed.
func (a *agent) drain(life context.Context, envoy *envoy, admin *admin) {
	a.startDraining()
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	go func() {
		select {
		case <-envoy.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.awaitDrained(ctx); err != nil {
		a.Log.Warn("the drain continues without a confirmation of the control plane that no client is sent here",
			"reason", err)
	}
	settings, _ := a.settings.load()
	envoy.drain(life, admin, time.Duration(settings.DrainSeconds)*time.Second, a.Log)
}

// startDraining makes the proxy unready, and reports that it drains.
func (a *agent) startDraining() {
	a.statusReporter.startDraining()
	a.ready.store(false)
}

// isUnused reports whether no request is lost with the proxy: no client sends requests to it, and its applications have
// ended, or will have ended before it.
func (a *agent) isUnused(settings *wire.Settings) bool {
	return len(settings.Listeners) == 0 && (a.EndsLast || settings.Completed)
}

// awaitDrained returns nil once the control plane reports the proxy drained; at once where the proxy is unused. It
// returns an error after drainTimeout, if ctx ends, or if for sessionTimeout no session has lasted that long.
func (a *agent) awaitDrained(ctx context.Context) error {
	bound := time.After(drainTimeout)
	session, _ := a.session.load()
	var lost time.Time // end of the last session that lasted, or the start of a drain without a session
	if session.IsZero() {
		lost = time.Now()
	}
	for {
		settings, next := a.settings.load()
		if settings.Drained || a.isUnused(settings) {
			return nil
		}
		present, changed := a.session.load()
		if !present.Equal(session) && (lost.IsZero() || !session.IsZero() && time.Since(session) >= sessionTimeout) {
			lost = time.Now()
		}
		session = present
		var expired <-chan time.Time
		if session.IsZero() {
			expired = time.After(time.Until(lost.Add(sessionTimeout)))
		}
		select {
		case <-next:
		case <-changed:
		case <-expired:
			return fmt.Errorf("no session with it lasted in the last %s", sessionTimeout)
		case <-bound:
			return fmt.Errorf("it has not done so within %s", drainTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
