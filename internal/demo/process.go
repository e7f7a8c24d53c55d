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
)

// processes are the programs that the demo runs. Each one has its own process group, so a Ctrl-C in the terminal
// reaches only the demo, which then ends them.
type processes struct {
	dir  string
	fail func(error) // called when a program ends that was not killed

	mu      sync.Mutex
	running []*process
}

// process is one program.
type process struct {
	name   string
	log    string // the file of its output
	cmd    *exec.Cmd
	killed bool          // guarded by processes.mu
	ended  chan struct{} // closed when it has been reaped
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
func (p *processes) start(name string, env []string, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	started := &process{name: name, log: log.Name(), ended: make(chan struct{})}
	started.cmd = exec.Command(program, args...)
	started.cmd.Dir, started.cmd.Env = p.dir, p.environment(env...)
	started.cmd.Stdout, started.cmd.Stderr = log, log
	started.cmd.SysProcAttr = ownGroup()
	if err := started.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.mu.Lock()
	p.running = append(p.running, started)
	p.mu.Unlock()
	go p.reap(started)
	return started, nil
}

func (p *processes) reap(ended *process) {
	err := ended.cmd.Wait()
	p.mu.Lock()
	expected := ended.killed
	p.mu.Unlock()
	close(ended.ended)
	if expected {
		return
	}
	reason := "exit status 0"
	if err != nil {
		reason = err.Error()
	}
	p.fail(fmt.Errorf("%s ended by itself: %s", ended.name, reason))
}

// kill sends SIGKILL to programs and all their descendants, and waits until the programs have ended.
func (p *processes) kill(victims ...*process) {
	p.mu.Lock()
	for _, v := range victims {
		v.killed = true
	}
	p.mu.Unlock()
	for _, v := range victims {
		if !v.gone() { // another process may have the PID of a reaped one
			killFamily(v.cmd.Process.Pid)
		}
	}
	for _, v := range victims {
		<-v.ended
	}
}

// gone returns whether the program has ended and was reaped.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
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
	cmd.SysProcAttr = ownGroup()
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
		t := logTail{r.name, lastLines(r.log, 12)}
		all = append(all, t)
		if r.gone() && !r.killed {
			alone = append(alone, t)
		}
	}
	if len(alone) > 0 {
		return alone
	}
	return all
}

// lastLines returns the last n lines of a file, or "" if it cannot be read.
func lastLines(file string, n int) string {
	content, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
