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
)

// startTimeout bounds the start of a program. All are ready after some seconds on free cores.
const startTimeout = 2 * time.Minute

// Process is a running program.
type Process struct {
	Name   string
	Log    string // the file with its output
	cmd    *exec.Cmd
	exited chan struct{}
}

// StartProcess starts a program, which the kernel kills with this process. Its output goes to a file NAME.log in dir.
func StartProcess(dir, path string, args ...string) (*Process, error) {
	p := &Process{Name: filepath.Base(path), exited: make(chan struct{}), cmd: exec.Command(path, args...)}
	p.Log = filepath.Join(dir, p.Name+".log")
	output, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p.cmd.Stdout, p.cmd.Stderr = output, output
	endWithParent(p.cmd)
	started := make(chan error)
	go func() {
		// The signal is sent when the thread that started the program ends.
		runtime.LockOSThread()
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return p, nil
}

// Ready waits until the URL responds with success, for 2 minutes at most. It returns an error with the program's last
// output once the program has exited.
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

// Await tries until an attempt succeeds, for 2 minutes at most. It returns an error with the program's last output once
// the program has exited.
func (p *Process) Await(condition string, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-retry.C:
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.Name, p.lastLines())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("%s is not ready after %s: %s: %w: %s", p.Name, startTimeout, condition, err,
				p.lastLines())
		}
	}
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the program at once, and waits until it has ended. A program that was not started has.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the program by SIGTERM, and waits until it has ended.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(signal os.Signal) {
	if p != nil {
		_ = p.cmd.Process.Signal(signal)
		<-p.exited
	}
}

// lastLines returns the end of the program's output.
func (p *Process) lastLines() string {
	output, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
