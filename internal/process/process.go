// Package process runs programs whose output goes to files. The kernel kills them with this process, where it can.
package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"weft/internal/wait"
)

// Process is a program, which runs in a process group of its own.
type Process struct {
	Name string
	Log  string   // the file with its output, to which each start appends
	Dir  string   // in which it runs; empty: that of this process
	Env  []string // its environment, as NAME=VALUE; nil: that of this process
	// Launch starts the command, on a thread that outlives it; nil: on a thread of its own.
	Launch func(*exec.Cmd) error

	command []string
	cmd     *exec.Cmd
	exited  chan struct{}
}

// New returns a program, by its command, that is not started. Its output goes to a file NAME.log in dir.
func New(dir, name string, command ...string) *Process {
	return &Process{Name: name, Log: filepath.Join(dir, name+".log"), command: command}
}

// Start starts a program by its command, as [Process.Start] does. Its output goes to a file NAME.log in dir.
func Start(dir, name string, command ...string) (*Process, error) {
	p := New(dir, name, command...)
	return p, p.Start()
}

// Start starts the program, again once it has ended.
func (p *Process) Start() error {
	output, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd, exited := exec.Command(p.command[0], p.command[1:]...), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env, cmd.SysProcAttr = output, output, p.Dir, p.Env, OwnGroup()
	launch := p.Launch
	if launch == nil {
		launch = (*exec.Cmd).Start
	}
	started := make(chan error)
	go func() {
		// The kernel kills the program when the thread that started it ends.
		runtime.LockOSThread()
		defer close(exited)
		err := launch(cmd)
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.cmd, p.exited = cmd, exited
	return nil
}

// PID returns the ID of the program's process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exit returns a channel that is closed once the program has exited.
func (p *Process) Exit() <-chan struct{} { return p.exited }

// HasExited reports whether the program has exited.
func (p *Process) HasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// State returns how the program has exited.
func (p *Process) State() *os.ProcessState {
	<-p.exited
	return p.cmd.ProcessState
}

// Signal sends a signal to the program.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// FreezeFamily stops the program and all its descendants from running until thaw, as a machine that hangs does.
func (p *Process) FreezeFamily() (thaw func()) {
	family := stopFamily(p.PID())
	return func() { signalAll(family, syscall.SIGCONT) }
}

// Freeze stops the program from running until Thaw. Its connections stay open.
func (p *Process) Freeze() error { return p.Signal(syscall.SIGSTOP) }

// Thaw continues a frozen program.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// Stop ends the program by SIGTERM, as [Process.End] does.
func (p *Process) Stop() { p.End(syscall.SIGTERM) }

// End sends the program a signal that ends it, and waits until it has exited. A program that was not started has.
func (p *Process) End(signal os.Signal) {
	if p != nil && p.cmd != nil {
		_ = p.Signal(signal) // unless it has exited
		<-p.exited
	}
}

// Kill kills the program with its process group, and waits until it has exited. A program that was not started has.
func (p *Process) Kill() {
	if p == nil || p.cmd == nil {
		return
	}
	if !p.HasExited() { // another process may have the ID of one that was waited for
		killGroup(p.PID())
	}
	<-p.exited
}

// KillFamilies kills programs with their groups and all their descendants, and waits until the programs have exited.
func KillFamilies(programs ...*Process) {
	for _, p := range programs {
		if !p.HasExited() {
			signalAll(stopFamily(p.PID()), syscall.SIGKILL)
		}
	}
	for _, p := range programs {
		<-p.exited
	}
}

// Ready waits until the URL responds with success, as [Process.Await] does.
func (p *Process) Ready(limit time.Duration, url string, client *http.Client) error {
	return p.Await(limit, url, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// Await tries until an attempt succeeds. It returns an error with the program's last output once the program has
// exited, and after the limit, when it kills the program.
func (p *Process) Await(limit time.Duration, condition string, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-p.exited:
		case <-ctx.Done():
		}
	}()
	err := wait.Until(ctx, 20*time.Millisecond, attempt)
	switch {
	case err == nil:
		return nil
	case p.HasExited():
		return fmt.Errorf("%s exited: %s", p.Name, p.LastLines(10))
	}
	p.Kill()
	return fmt.Errorf("%s is not ready after %s: %s: %w: %s", p.Name, limit, condition, err, p.LastLines(10))
}

// LastLines returns the last n lines of the program's output, or "" if its file cannot be read.
func (p *Process) LastLines(n int) string {
	output, _ := os.ReadFile(p.Log)
	lines := strings.Split(strings.TrimRight(string(output), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
