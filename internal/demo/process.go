package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"weft/internal/process"
)

// processes are the programs that the demo runs. Each one has its own process group, so a Ctrl-C in the terminal
// reaches only the demo, which then ends them.
type processes struct {
	dir  string
	fail func(error) // called when a program ends that was not killed

	mu      sync.Mutex
	running []*program
}

// program is a program that was started.
type program struct {
	*process.Process
	killed bool // guarded by processes.mu
}

// logTail is the end of a program's output.
type logTail struct{ name, text string }

func newProcesses(dir string, fail func(error)) *processes {
	return &processes{dir: dir, fail: fail}
}

// environment returns the environment of the demo's own process without settings of weft, which would change the demo.
// Temporary files and the configuration of the weft command are in the demo's directory.
func (p *processes) environment(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "KUMA_") && !strings.HasPrefix(e, "WEFT_") {
			env = append(env, e)
		}
	}
	return append(append(env, "TMPDIR="+p.dir, "WEFT_CONFIG="+filepath.Join(p.dir, "home", "config")), more...)
}

// start runs a program until it is killed. Its output goes to a file.
func (p *processes) start(name string, env []string, path string, args ...string) (*program, error) {
	started := &program{Process: process.New(p.dir, name, append([]string{path}, args...)...)}
	started.Dir, started.Env = p.dir, p.environment(env...)
	if err := started.Start(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.running = append(p.running, started)
	p.mu.Unlock()
	go p.awaitExit(started)
	return started, nil
}

func (p *processes) awaitExit(of *program) {
	state := of.State()
	p.mu.Lock()
	expected := of.killed
	p.mu.Unlock()
	if !expected {
		p.fail(fmt.Errorf("%s ended by itself: %s", of.Name, state))
	}
}

// kill sends SIGKILL to programs and all their descendants, and waits until the programs have ended.
func (p *processes) kill(victims ...*program) {
	var all []*process.Process
	p.mu.Lock()
	for _, v := range victims {
		v.killed = true
		all = append(all, v.Process)
	}
	p.mu.Unlock()
	process.KillFamilies(all...)
}

// killAll ends every program.
func (p *processes) killAll() {
	p.mu.Lock()
	all := p.running
	p.mu.Unlock()
	p.kill(all...)
}

// run runs a program to its end and returns its standard output. The error has its standard error.
func (p *processes) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, problems bytes.Buffer
	cmd.Dir, cmd.Env = p.dir, p.environment()
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.SysProcAttr = process.OwnGroup()
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return out.String(), context.Cause(ctx)
	}
	said := strings.TrimSpace(problems.String())
	if said == "" {
		said = err.Error()
	}
	return out.String(), errors.New(said)
}

// tails returns the last lines of the programs that ended by themselves, or of all programs if none did.
func (p *processes) tails() []logTail {
	p.mu.Lock()
	defer p.mu.Unlock()
	var alone, all []logTail
	for _, r := range p.running {
		t := logTail{r.Name, r.LastLines(12)}
		all = append(all, t)
		if r.HasExited() && !r.killed {
			alone = append(alone, t)
		}
	}
	if len(alone) > 0 {
		return alone
	}
	return all
}
