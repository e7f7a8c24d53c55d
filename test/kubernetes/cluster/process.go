package cluster

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

	"weft/internal/testwait"
	"weft/internal/wait"
)

// Process is a program.
type Process struct {
	Name    string
	Log     string   // the file with its output
	Env     []string // its environment, as NAME=VALUE, beside that of this process
	command []string
	cmd     *exec.Cmd
	exited  chan struct{}
}

// NewProcess returns a program, by its command, that is not started. Its output goes to a file NAME.log in dir.
func NewProcess(dir, name string, command ...string) *Process {
	return &Process{Name: name, Log: filepath.Join(dir, name+".log"), command: command}
}

// StartProcess starts a program by its command, as [Process.Start] does. Its output goes to a file NAME.log in dir.
func StartProcess(dir, name string, command ...string) (*Process, error) {
	p := NewProcess(dir, name, command...)
	return p, p.Start()
}

// Start starts the program, again once it has ended. The kernel kills it with this process.
func (p *Process) Start() error {
	output, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	program, exited := exec.Command(p.command[0], p.command[1:]...), make(chan struct{})
	program.Stdout, program.Stderr = output, output
	program.Env = append(os.Environ(), p.Env...)
	endWithParent(program)
	started := make(chan error)
	go func() {
		// The signal is sent when the thread that started the program ends.
		runtime.LockOSThread()
		defer close(exited)
		err := program.Start()
		started <- err
		if err == nil {
			_ = program.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	p.cmd, p.exited = program, exited
	return nil
}

// Ready waits until the URL responds with success, for [testwait.Timeout] at most. It returns an error with the
// program's last output once the program has exited.
func (p *Process) Ready(url string, client *http.Client) error {
	return p.Await(url, func(ctx context.Context) error {
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

// Await tries until an attempt succeeds, for [testwait.Timeout] at most. It returns an error with the program's last
// output once the program has exited.
func (p *Process) Await(condition string, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Timeout)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-p.exited:
		case <-ctx.Done():
		}
	}()
	err := wait.Until(ctx, 20*time.Millisecond, attempt)
	if err == nil {
		return nil
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended: %s", p.Name, p.lastLines())
	default:
		p.Kill()
		return fmt.Errorf("%s is not ready after %s: %s: %w: %s", p.Name, testwait.Timeout, condition, err,
			p.lastLines())
	}
}

// PID is the ID of the program's process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the program at once, and waits until it has ended. A program that was not started has.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the program by SIGTERM, and waits until it has ended.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(signal os.Signal) {
	if p != nil && p.cmd != nil {
		_ = p.cmd.Process.Signal(signal)
		<-p.exited
	}
}

// Freeze stops the program from running until Thaw. Its connections stay open.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw continues a frozen program.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// lastLines returns the end of the program's output.
func (p *Process) lastLines() string {
	output, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
