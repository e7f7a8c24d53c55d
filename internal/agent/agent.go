// Package agent is what weft-dp is made of: it stands beside one Envoy, proves to the control plane whose
// it is, gets it a certificate, relays its configuration, and says what it serves.
//
// The private key is made here and never leaves the machine. Configuration passes through without being
// looked at. What the agent reports as served it has seen itself, by a dial of its own. A control plane
// that is away stops nothing: Envoy serves on with what it has. Nothing here knows the control plane's
// insides; the contract is package wire and Envoy's own protocols.
//
// The parts share a few watched values (settings, leaf, report) and otherwise nothing:
//
//	keepSession      settings <- control plane; report -> control plane
//	keepCertificates settings -> leaf
//	keepProbing      settings -> health of the application -> report
//	keepSeeing       the certificate that Envoy has from SPIRE -> leaf, report
//	keepChecking     settings, leaf -> what is seen to serve -> report
//	relay, secrets   Envoy's configuration and its leaf, on a unix socket
//	serveExternal    the names of servers outside the mesh -> the Envoy of a zone egress
//	keepNames        the mesh's host names <- control plane -> the machine's DNS (package nameserver)
//	answer           a question of the control plane -> a page of Envoy's administration interface
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

// Config says what one agent needs.
type Config struct {
	ControlPlane   []string // https://HOST:PORT, of one instance or several
	CAFile         string   // PEM, the CA certificates of the control plane
	ProxyType      ProxyType
	DataplaneFile  string           // the Dataplane, ZoneIngress or ZoneEgress, YAML or JSON
	TokenFile      string           // read anew for each call, so that it may be replaced
	Envoy          string           // the binary; empty: see findEnvoy
	ReadinessPort  int              // of `/ready`; 0: none
	DNSPort        int              // of the machine's DNS, where the Dataplane has transparentProxying; 0: none
	DNSResolvers   []netip.AddrPort // of names that are not the mesh's; empty: those of /etc/resolv.conf
	EnvoyLogLevel  string           // as Envoy's --log-level
	EnvoyMaxMemory uint64           // bytes of Envoy's heap; 0: see defaultMemory
	Version        string           // of weft-dp, which the control plane shows
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
	// drainBound is how long a draining proxy waits, whatever its sessions do, to hear that no client is sent to it any
	// more. A control plane says so after 30 s for the acks of clients and its drain time, 20 s at most.
	drainBound = 50 * time.Second
	// absence is how long a draining proxy waits without a session for the control plane to come back. A session that
	// breaks earlier than after this time does not start it anew: a control plane without its store has such ones.
	absence = 10 * time.Second
	// lastWordBound is how long the agent of an Envoy that has ended tries to say that nothing is served any
	// more.
	lastWordBound = time.Second
)

// agent is one run.
type agent struct {
	Config
	control   *controlPlane
	dataplane *resource.Object[kind.Dataplane]
	document  []byte // the Dataplane as it was written
	mesh      string // as the control plane answered
	name      string

	settings *watched[*wire.Settings] // nil until the first ones arrive
	leaves   *leaves
	leaf     *watched[*leaf] // of these, the first; nil until there is one
	outlook  *outlook
	named    *watched[bool] // the control plane has told the names, or has none to tell
	ready    *watched[bool]
	admin    atomic.Pointer[admin] // nil until Envoy has been started
	heard    *watched[bool]        // the control plane has taken the last word
	// session is since when the control plane responds on the present session; the zero time while there is none.
	session *watched[time.Time]
	// externalDNS is where a zone egress's Envoy resolves names; the zero value on other proxies. It is set before
	// Envoy is started.
	externalDNS netip.AddrPort
}

// Run registers, starts Envoy and stays until ctx ends, upon which it drains. An Envoy that dies after it was
// ready is started again. It answers nil after a drain, and an [ExitError] where Envoy ended before it was
// ready, or dies again and again.
func Run(ctx context.Context, c Config) error {
	binary, version, err := findEnvoy(ctx, c.Envoy)
	if err != nil {
		return err
	}
	a, err := newAgent(c, version)
	if err != nil {
		return err
	}
	defer a.control.close()
	if a.mesh, a.name, err = a.control.register(ctx, a.document, c.Log); err != nil {
		return err
	}
	c.Log.Info("registered", "mesh", a.mesh, "dataplane", a.name, "controlPlane", a.control)

	// What runs beside Envoy outlives ctx, since draining needs it.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	parts, life := errgroup.WithContext(life)
	defer func() { end(); parts.Wait() }()
	parts.Go(func() error { return a.keepSession(life) })
	parts.Go(func() error { return a.keepCertificates(life) })

	if err := a.awaitStart(ctx, life); err != nil {
		return err
	}
	return a.serve(ctx, life, parts, binary)
}

func newAgent(c Config, version string) (*agent, error) {
	document, dataplane, err := readDataplane(c.DataplaneFile, c.ProxyType)
	if err != nil {
		return nil, err
	}
	control, err := connect(c)
	if err != nil {
		return nil, err
	}
	a := &agent{
		Config: c, control: control, dataplane: dataplane, document: document,
		settings: watch[*wire.Settings](nil),
		leaves:   newLeaves(),
		outlook:  newOutlook(rand.Text(), version),
		ready:    watch(false),
		heard:    watch(false),
		session:  watch(time.Time{}),
	}
	a.leaf = a.leaves.of(leafSecret)
	a.named = watch(!a.resolves())
	return a, nil
}

// started says whether Envoy has been started.
func (a *agent) started() bool { return a.admin.Load() != nil }

// readDataplane checks what can be checked without the control plane, for an early and exact message.
func readDataplane(file string, wanted ProxyType) ([]byte, *resource.Object[kind.Dataplane], error) {
	document, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("the Dataplane (--dataplane-file): %w", err)
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

// proxyOf is a Dataplane, or a zone proxy that serves every mesh as a Dataplane of no mesh would be one.
func proxyOf(o resource.Any, wanted ProxyType) (*resource.Object[kind.Dataplane], error) {
	if wanted != DataplaneProxy && wanted != IngressProxy && wanted != EgressProxy {
		return nil, fmt.Errorf("--proxy-type is %q, want %s, %s or %s", wanted, DataplaneProxy, IngressProxy,
			EgressProxy)
	}
	dataplane, is := typed(o)
	if is == "" {
		return nil, fmt.Errorf("is a %s, want a Dataplane, a ZoneIngress or a ZoneEgress", o.Key().Kind)
	}
	if is != wanted {
		return nil, fmt.Errorf("is a %s, which runs with --proxy-type %s, not %s", o.Key().Kind, is, wanted)
	}
	return dataplane, nil
}

// typed says what a proxy's resource is; "" of one that is no proxy's.
func typed(o resource.Any) (*resource.Object[kind.Dataplane], ProxyType) {
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

// awaitStart waits for what Envoy needs before it starts: settings, and a certificate if there is an
// identity, unless Envoy itself asks a SPIRE agent for it. An Envoy without its certificate would refuse
// connections that it could serve a moment later.
func (a *agent) awaitStart(ctx, life context.Context) error {
	waiting, cancel := context.WithCancel(life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	settings, err := a.settings.await(waiting, func(s *wire.Settings) bool { return s != nil })
	if err == nil && settings.Identity != nil && settings.Identity.SpireSocket == "" {
		_, err = a.leaf.await(waiting, func(l *leaf) bool { return l != nil })
	}
	if err != nil && ctx.Err() == nil {
		return context.Cause(life) // the part that gave up says why
	}
	return err
}

// serve runs Envoy and everything that needs it.
func (a *agent) serve(ctx, life context.Context, parts *errgroup.Group, binary string) error {
	room, err := newRoom()
	if err != nil {
		return err
	}
	defer room.remove()
	listener, err := room.listen()
	if err != nil {
		return err
	}
	relay := a.newRelay()
	defer relay.Stop()
	parts.Go(func() error { return relay.Serve(listener) })
	if err := a.serveReadiness(life, parts); err != nil {
		return err
	}
	if err := a.serveNames(life, parts); err != nil {
		return err
	}
	if err := a.serveExternal(life, parts); err != nil {
		return err
	}
	parts.Go(func() error { return a.keepProbing(life) })
	for crashes := (crashes{}); ; {
		wasReady, err := a.runEnvoy(ctx, life, room, binary)
		var died *ExitError
		switch {
		case !errors.As(err, &died):
			return err
		case !wasReady, ctx.Err() != nil, !crashes.another(time.Now()):
			a.lastWord(life)
			return err
		}
		a.Log.Error("Envoy died and is started again", "how", died)
	}
}

// runEnvoy runs one Envoy until it ends, which is an [ExitError], or until ctx ends and it has drained. It
// says whether Envoy was ready when it ended.
func (a *agent) runEnvoy(ctx, life context.Context, room *room, binary string) (wasReady bool, err error) {
	settings, _ := a.settings.load()
	bootstrap, err := a.bootstrap(room, settings)
	if err != nil {
		return false, err
	}
	envoy, err := startEnvoy(binary, bootstrap, settings.DrainSeconds, a.Config)
	if err != nil {
		return false, err
	}
	defer envoy.kill()
	admin := newAdmin(room, settings)
	a.admin.Store(admin)
	watching, stop := context.WithCancel(life)
	var watchers sync.WaitGroup
	watchers.Go(func() { a.keepChecking(watching, admin) })
	watchers.Go(func() { a.keepSeeing(watching, admin) })
	defer func() { stop(); watchers.Wait() }()

	select {
	case <-envoy.done:
		stop()
		watchers.Wait()
		wasReady, _ = a.ready.load()
		a.ready.store(false)
		a.outlook.crash()
		return wasReady, fmt.Errorf("Envoy ended: %w", envoy.exit())
	case <-life.Done():
		return true, context.Cause(life)
	case <-ctx.Done():
		a.Log.Info("draining")
		a.drain(life, envoy, admin)
		return true, nil
	}
}

// lastWord tells the control plane that nothing is served any more, so that clients need not find out.
func (a *agent) lastWord(life context.Context) {
	ctx, cancel := context.WithTimeout(life, lastWordBound)
	defer cancel()
	a.outlook.end()
	a.heard.await(ctx, func(heard bool) bool { return heard })
}

// drain makes the proxy go without a lost request: first the clients let go of it, then it finishes what
// is in flight, then it ends.
func (a *agent) drain(life context.Context, envoy *envoy, admin *admin) {
	a.ready.store(false)
	a.outlook.drain()
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
		a.Log.Warn("the drain goes on, though the control plane has not confirmed that no client is sent here any more",
			"reason", err)
	}
	settings, _ := a.settings.load()
	envoy.drain(life, admin, time.Duration(settings.DrainSeconds)*time.Second, a.Log)
}

// awaitDrained returns nil once the control plane states that no client is sent here any more, after the drain time. It
// returns an error after drainBound, where ctx ends, and once there is no session and the last one that lasted for
// absence broke as long ago.
func (a *agent) awaitDrained(ctx context.Context) error {
	bound := time.After(drainBound)
	session, _ := a.session.load()
	var lost time.Time // when the last session that lasted broke, or the drain began without a session
	if session.IsZero() {
		lost = time.Now()
	}
	for {
		settings, next := a.settings.load()
		if settings.Drained {
			return nil
		}
		present, changed := a.session.load()
		if !present.Equal(session) && (lost.IsZero() || !session.IsZero() && time.Since(session) >= absence) {
			lost = time.Now()
		}
		session = present
		var expired <-chan time.Time
		if session.IsZero() {
			expired = time.After(time.Until(lost.Add(absence)))
		}
		select {
		case <-next:
		case <-changed:
		case <-expired:
			return fmt.Errorf("no session with it lasted in the last %s", absence)
		case <-bound:
			return fmt.Errorf("it has not done so within %s", drainBound)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
