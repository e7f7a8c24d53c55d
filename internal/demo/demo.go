// Package demo runs a mesh of two zones on one machine and checks it. The mesh has a global control plane, a control
// plane for each zone, and services with real Envoys. The demo sends an identified request, a denied one, a cross-zone
// one, and one to an external service. Under traffic it kills an instance, fails a service over to the other zone and
// back, restarts control planes, and kills a zone ingress.
//
// The demo uses only the commands of a user and the YAML under examples/demo. It runs `weft` and `weft-dp` as programs
// and prints each command. It needs Linux, where every address of 127.0.0.0/8 works without configuration, and no
// privileges. When [Run] returns, its processes have ended and its files are removed.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"weft/examples"
	"weft/internal/demo/console"
)

// Options are the options of [Run]. Programs are paths of executables.
type Options struct {
	Weft   string
	WeftDP string
	Envoy  string
	// Once ends the demo after its checks; otherwise it runs until the context ends.
	Once bool
	Out  io.Writer
}

// errInterrupted is the error of a context that ended before the checks did.
var errInterrupted = errors.New("interrupted before the end of the checks; all processes and files are removed")

// ErrChecks is the error of a demo whose checks did not all pass. The printed table has the failures.
var ErrChecks = errors.New("the demo ran, but not every check passed")

// stepTimeout bounds each wait of the demo: for a port, a proxy or a response.
const stepTimeout = 30 * time.Second

// world is a running demo.
type world struct {
	options   Options
	dir       string // of all files of the demo
	console   *console.Console
	processes *processes
	ports     ports // the same for each control plane
	global    *plane
	east      *plane
	west      *plane
	instances []*instance
}

// Run runs the demo. It returns nil if every check passed, [ErrChecks] if one failed, and another error if the demo
// could not run.
func Run(ctx context.Context, o Options) error {
	if runtime.GOOS != "linux" {
		return errors.New("the demo runs on Linux only: it uses addresses such as 127.0.1.11, which other systems " +
			"want configured")
	}
	dir, err := os.MkdirTemp("", "weft-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w := &world{options: o, dir: dir, console: &console.Console{Out: o.Out}, processes: newProcesses(dir, fail)}
	defer w.processes.killAll()

	err = w.play(ctx)
	if err == nil || errors.Is(err, ErrChecks) {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.Canceled):
		return errInterrupted
	case cause != nil:
		err = cause // a program that ended is the cause of later errors
	}
	for _, tail := range w.processes.tails() {
		w.console.Print("The last lines of %s:", tail.name)
		w.console.Output(tail.text)
	}
	return err
}

// play starts the mesh, runs the checks, and with Options.Once false waits for the end of the context.
func (w *world) play(ctx context.Context) error {
	began := time.Now()
	if err := w.bringUp(ctx); err != nil {
		return err
	}
	passed := w.runChecks(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	w.console.Print("The demo took %d seconds.", int(time.Since(began).Round(time.Second).Seconds()))
	if !w.options.Once {
		w.printCommands()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return cause
		}
		w.console.Print("Stopping.")
	}
	if !passed {
		return ErrChecks
	}
	return nil
}

// bringUp starts all programs and returns when every instance is ready.
func (w *world) bringUp(ctx context.Context) error {
	if err := writeExamples(w.dir); err != nil {
		return err
	}
	w.instances = newInstances()
	if err := addressesFree(w.instances); err != nil {
		return err
	}

	w.console.Step("A global control plane, and two zones that join it (all files are in %s)", w.dir)
	w.console.Command("cd " + w.dir)
	if err := startPlanes(ctx, w); err != nil {
		return err
	}

	w.console.Step("The mesh: identities, traffic permissions, and the services of each zone")
	for _, write := range []struct {
		to   *plane
		what string
	}{{w.global, "mesh"}, {w.east, "east/services.yaml"}, {w.west, "west/services.yaml"}} {
		applied, err := write.to.weft(ctx, "apply", "-f", write.what)
		if err != nil {
			return err
		}
		w.console.Output(applied)
		if err := w.rulesEverywhere(ctx); err != nil {
			return err
		}
	}

	w.console.Step("Nine proxies: five applications with weft-dp and Envoy beside each, the ingresses of both zones, " +
		"and the egress of one; and an application outside")
	for i, in := range w.instances {
		in.plane = w.east
		if in.zone == west {
			in.plane = w.west
		}
		if err := in.start(ctx, w, i == 0); err != nil {
			return err
		}
	}
	w.console.Note("and the same for %s", strings.Join(names(w.instances[1:]), ", "))
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

// rulesEverywhere waits until both zones have the resources of global.
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

// printCommands prints commands for another terminal.
func (w *world) printCommands() {
	permissions := filepath.Join(w.dir, "mesh", "permissions.yaml")
	w.console.Step("Yours until Ctrl-C; in another terminal:")
	for _, line := range []string{
		"cd " + w.dir,
		fmt.Sprintf("export PATH=%s:$PATH GLOBAL=%s EAST=%s WEST=%s", filepath.Dir(w.options.Weft), w.global.api(),
			w.east.api(), w.west.api()),
		"weft --api $GLOBAL check",
		"weft --api $GLOBAL inspect zones",
		"weft --api $EAST inspect dataplanes",
		"weft --api $EAST inspect dataplane web --config",
		"weft --api $EAST explain --from web --to " + strings.TrimPrefix(acrossURL,
			"http://") + "   # every hop, into the other zone",
		"curl " + acrossURL + "   # served in the other zone",
		"curl " + outURL + "   # served outside of the mesh",
		"curl -i " + reportsURL + "   # denied; allow it:",
		fmt.Sprintf("sed '/deny:/,/workload.web/d' %s | weft --api $GLOBAL apply -f -", permissions),
		"curl " + reportsURL + "   # and deny it again:",
		"weft --api $GLOBAL apply -f " + permissions,
		"weft --api $EAST get meshservices",
		fmt.Sprintf("curl --unix-socket %s -H @%s http://west/meshes/default/meshservices/backend", w.west.socket(),
			w.west.proof()),
	} {
		w.console.Line("  " + line)
	}
}

// writeExamples writes the YAML of the demo to dir, and creates a folder for the global control plane.
func writeExamples(dir string) error {
	files, err := fs.Sub(examples.Demo, "demo")
	if err != nil {
		return err
	}
	return errors.Join(os.CopyFS(dir, files), os.Mkdir(filepath.Join(dir, "global"), 0o700))
}
