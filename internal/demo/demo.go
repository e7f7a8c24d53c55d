// Package demo shows a mesh at work on one machine and checks what it shows: a control plane, three
// services behind real Envoys, a request that is identified, one that is refused, an instance that dies
// and a control plane that restarts under traffic.
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
	plane     *plane
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

	w.console.step("A control plane of its own (everything here lives in %s)", w.dir)
	w.console.command("cd " + w.dir)
	plane, err := startPlane(ctx, w)
	if err != nil {
		return err
	}
	w.plane = plane

	w.console.step("What the mesh is: identities, services, who may call whom")
	applied, err := w.weft(ctx, "apply", "-f", "mesh")
	if err != nil {
		return err
	}
	w.console.output(applied)

	w.console.step("Four instances, each an application with weft-dp and Envoy beside it")
	for i, in := range w.instances {
		if err := in.start(ctx, w, i == 0); err != nil {
			return err
		}
	}
	w.console.note("and the same for backend-1, backend-2 and reports")
	for _, in := range w.instances {
		if err := in.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// weft runs a command of weft to its end, after showing it, and answers what it printed.
func (w *world) weft(ctx context.Context, args ...string) (string, error) {
	w.console.command("weft", args...)
	return w.quietly(ctx, args...)
}

// quietly runs a command of weft to its end.
func (w *world) quietly(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return w.processes.run(ctx, w.options.Weft, append([]string{"--api", w.plane.api()}, args...)...)
}

// invite says what to try while the demo stays up.
func (w *world) invite() {
	permissions := filepath.Join(w.dir, "mesh", "permissions.yaml")
	w.console.step("Yours until Ctrl-C; in another terminal:")
	for _, line := range []string{
		fmt.Sprintf("export PATH=%s:$PATH WEFT_API=%s", filepath.Dir(w.options.Weft), w.plane.api()),
		"weft check",
		"weft inspect dataplanes",
		"weft inspect dataplane web --config",
		"weft explain --from web --to backend",
		"curl " + backendURL,
		"curl -i " + reportsURL + "   # refused; allow it:",
		fmt.Sprintf("sed '/deny:/,/workload.web/d' %s | weft apply -f -", permissions),
		"curl " + reportsURL + "   # and forbid it again:",
		"weft apply -f " + permissions,
		"weft get meshservice backend -o yaml",
		"curl " + w.plane.api() + "/meshes/default/meshservices/backend",
	} {
		w.console.line("  " + line)
	}
}

// writeExamples puts the YAML of the demo into dir.
func writeExamples(dir string) error {
	files, err := fs.Sub(examples.Demo, "demo")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, files)
}
