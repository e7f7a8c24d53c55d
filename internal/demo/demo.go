// Package demo shows a mesh of two zones at work on one machine and checks what it shows: a global control
// plane and one for each zone, services behind real Envoys, a request that is identified, one that is refused,
// one that crosses to the other zone, one that leaves the mesh, and under traffic: an instance that dies, a service that moves to the
// other zone and back, control planes that restart, a zone ingress that dies.
//
// It is made of the commands that a user has and of the YAML under examples/demo: it runs `weft` and
// `weft-dp` as programs, prints each command, and knows nothing of their insides. It needs Linux (any
// address of 127.0.0.0/8 works there without being configured) and no privileges. Everything that it
// starts and writes is gone when [Run] returns.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weft/examples"
)

// Options of [Run]. Programs are paths of executables.
type Options struct {
	Weft   string
	WeftDP string
	Envoy  string
	// Once ends the demo after its checks; otherwise it stays up until the context ends.
	Once bool
	Out  io.Writer
}

// errInterrupted is the answer to a context that ended before the checks did.
var errInterrupted = errors.New("interrupted before the checks were through; nothing stays behind")

// ErrChecks says that the demo ran and that something that it checks did not hold. The table that was
// printed says what.
var ErrChecks = errors.New("the demo ran, but not every check held")

// stepTimeout bounds each wait of the demo: for a port, for a proxy, for an answer.
const stepTimeout = 30 * time.Second

// world is a running demo.
type world struct {
	options   Options
	dir       string // of everything that the demo writes
	console   *console
	processes *processes
	ports     ports // of each control plane
	global    *plane
	east      *plane
	west      *plane
	instances []*instance
}

// Run shows the mesh and checks it. It answers nil when every check held, [ErrChecks] when one did not,
// and another error when the demo could not run.
func Run(ctx context.Context, o Options) error {
	if err := supported(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "weft-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w := &world{options: o, dir: dir, console: &console{out: o.Out}, processes: newProcesses(dir, fail)}
	defer w.processes.killAll()

	err = w.play(ctx)
	if err == nil || errors.Is(err, ErrChecks) {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.Canceled):
		return errInterrupted
	case cause != nil:
		err = cause // a program that ended is the reason, whatever failed for it
	}
	w.console.logs(w.processes.tails())
	return err
}

// play is the demo from its first line to its last.
func (w *world) play(ctx context.Context) error {
	began := time.Now()
	if err := w.bringUp(ctx); err != nil {
		return err
	}
	held := w.runChecks(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	w.console.say("All of it took %d seconds.", int(time.Since(began).Round(time.Second).Seconds()))
	if !w.options.Once {
		w.invite()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return cause
		}
		w.console.say("Stopping.")
	}
	if !held {
		return ErrChecks
	}
	return nil
}

// bringUp starts everything and returns when every instance serves.
func (w *world) bringUp(ctx context.Context) error {
	if err := writeExamples(w.dir); err != nil {
		return err
	}
	w.instances = newInstances()
	if err := addressesFree(w.instances); err != nil {
		return err
	}

	w.console.step("A global control plane, and two zones that join it (everything here lives in %s)", w.dir)
	w.console.command("cd " + w.dir)
	if err := startPlanes(ctx, w); err != nil {
		return err
	}

	w.console.step("What the mesh is: identities, who may call whom, and the services of each zone")
	for _, write := range []struct {
		to   *plane
		what string
	}{{w.global, "mesh"}, {w.east, "east/services.yaml"}, {w.west, "west/services.yaml"}} {
		applied, err := write.to.weft(ctx, "apply", "-f", write.what)
		if err != nil {
			return err
		}
		w.console.output(applied)
		if err := w.rulesEverywhere(ctx); err != nil {
			return err
		}
	}

	w.console.step("Nine proxies: five applications with weft-dp and Envoy beside each, the ingresses of both zones, and the egress of one; and an application outside")
	for i, in := range w.instances {
		in.plane = w.east
		if in.zone == west {
			in.plane = w.west
		}
		if err := in.start(ctx, w, i == 0); err != nil {
			return err
		}
	}
	w.console.note("and the same for %s", strings.Join(names(w.instances[1:]), ", "))
	if err := w.startPartner(); err != nil {
		return err
	}
	for _, in := range w.instances {
		if err := in.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rulesEverywhere waits until both zones have what is written on global.
func (w *world) rulesEverywhere(ctx context.Context) error {
	for _, zone := range []*plane{w.east, w.west} {
		for _, rule := range []string{"meshmultizoneservices", "meshidentities", "meshtrafficpermissions"} {
			err := eventually(ctx, "the "+rule+" of global are in "+zone.name, func(ctx context.Context) error {
				return zone.hasAny(ctx, "/meshes/default/"+rule)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func names(instances []*instance) []string {
	all := make([]string, len(instances))
	for i, in := range instances {
		all[i] = in.name
	}
	return all
}

// invite says what to try while the demo stays up.
func (w *world) invite() {
	permissions := filepath.Join(w.dir, "mesh", "permissions.yaml")
	w.console.step("Yours until Ctrl-C; in another terminal:")
	for _, line := range []string{
		"cd " + w.dir,
		fmt.Sprintf("export PATH=%s:$PATH GLOBAL=%s EAST=%s WEST=%s", filepath.Dir(w.options.Weft), w.global.api(), w.east.api(), w.west.api()),
		"weft --api $GLOBAL check",
		"weft --api $GLOBAL inspect zones",
		"weft --api $EAST inspect dataplanes",
		"weft --api $EAST inspect dataplane web --config",
		"weft --api $EAST explain --from web --to " + strings.TrimPrefix(acrossURL, "http://") + "   # every hop, into the other zone",
		"curl " + acrossURL + "   # answered in the other zone",
		"curl " + outURL + "   # answered outside of the mesh",
		"curl -i " + reportsURL + "   # refused; allow it:",
		fmt.Sprintf("sed '/deny:/,/workload.web/d' %s | weft --api $GLOBAL apply -f -", permissions),
		"curl " + reportsURL + "   # and forbid it again:",
		"weft --api $GLOBAL apply -f " + permissions,
		"weft --api $EAST get meshservices",
		fmt.Sprintf("curl --unix-socket %s http://west/meshes/default/meshservices/backend", w.west.socket()),
	} {
		w.console.line("  " + line)
	}
}

// writeExamples puts the YAML of the demo into dir, and makes a folder for each control plane.
func writeExamples(dir string) error {
	files, err := fs.Sub(examples.Demo, "demo")
	if err != nil {
		return err
	}
	return errors.Join(os.CopyFS(dir, files), os.Mkdir(filepath.Join(dir, "global"), 0o700))
}
