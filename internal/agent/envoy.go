package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"weft/internal/wire"
)

// ExitError is the error of an Envoy that exited and is not restarted.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return "exit code " + strconv.Itoa(e.Code) }

// An Envoy that exits more than maxCrashes times within crashSpan is not restarted. Its cause needs an operator, and a
// supervisor's back-off is longer.
const (
	maxCrashes = 5
	crashSpan  = time.Minute
)

// crashes are the times of the last crashes.
type crashes []time.Time

// recordCrash records a crash, and reports whether Envoy is to be restarted.
func (c *crashes) recordCrash(now time.Time) bool {
	*c = slices.DeleteFunc(append(*c, now), func(at time.Time) bool { return now.Sub(at) > crashSpan })
	return len(*c) <= maxCrashes
}

// findEnvoy returns the path and version of a supported Envoy: the given path, or WEFT_ENVOY, or `envoy` on the PATH,
// or the one that `make tools` downloads next to the directory of this program.
func findEnvoy(ctx context.Context, given string) (path, version string, err error) {
	path, err = exec.LookPath(cmp.Or(given, os.Getenv("WEFT_ENVOY"), "envoy"))
	if err != nil && given == "" && os.Getenv("WEFT_ENVOY") == "" {
		if pinned, lookErr := exec.LookPath(pinnedEnvoy()); lookErr == nil {
			path, err = pinned, nil
		}
	}
	if err != nil {
		return "", "", fmt.Errorf("no Envoy: %w; install one, run `make tools`, or name it with --envoy or WEFT_ENVOY",
			err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w; is it an Envoy for this machine?", path, err)
	}
	version, err = checkVersion(path, out)
	return path, version, err
}

// pinnedEnvoy returns the path at which `make tools` stores Envoy, relative to bin/weft-dp.
func pinnedEnvoy() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(program), "..", ".tools", "envoy", "envoy")
}

var versionPattern = regexp.MustCompile(`/(\d+\.\d+\.\d+)`)

// checkVersion parses the output of `envoy --version`: "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL".
func checkVersion(path string, out []byte) (string, error) {
	found := versionPattern.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("%s does not say which version of Envoy it is: %q", path, bytes.TrimSpace(out))
	}
	version := string(found[1])
	if wire.EnvoyTooOld(version) {
		return "", fmt.Errorf("%s is Envoy %s, and %s is the oldest that is supported; install a newer one", path,
			version, wire.OldestEnvoy)
	}
	return version, nil
}

// envoy is a running Envoy.
type envoy struct {
	process *os.Process
	done    chan struct{}
	err     error // once done
}

// startEnvoy starts Envoy such that it exits with the agent, also if the agent is killed.
func startEnvoy(binary, bootstrap string, drainSeconds uint32, c Config) (*envoy, error) {
	output := &lineWriter{to: c.EnvoyOutput}
	args := []string{
		"--config-path", bootstrap,
		"--disable-hot-restart",
		"--drain-time-s", strconv.Itoa(int(drainSeconds)),
		"--drain-strategy", "immediate",
		"--log-level", c.EnvoyLogLevel,
	}
	if c.EnvoyLogLevels != "" {
		args = append(args, "--component-log-level", c.EnvoyLogLevels)
	}
	if c.Concurrency != 0 {
		args = append(args, "--concurrency", strconv.Itoa(c.Concurrency))
	}
	command := exec.Command(binary, args...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = killWithParent()
	e := &envoy{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel kills Envoy when the thread that started it exits, so this thread must not exit before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		e.process = command.Process
		started <- err
		if err != nil {
			return
		}
		e.err = command.Wait()
		output.flush()
		close(e.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting Envoy: %w", err)
	}
	return e, nil
}

// exit returns Envoy's exit code as an error. For a signal, it is 128 plus the signal's number, as in shells.
func (e *envoy) exit() error {
	var failed *exec.ExitError
	if !errors.As(e.err, &failed) {
		return &ExitError{Code: 0}
	}
	if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &ExitError{Code: 128 + int(status.Signal())}
	}
	return &ExitError{Code: failed.ExitCode()}
}

// kill kills Envoy and waits for its exit.
func (e *envoy) kill() {
	e.process.Kill()
	<-e.done
}

// drain drains Envoy, waits until no connection is open, for the bound at most, and terminates Envoy. An Envoy that
// does not respond may be busy with its connections, so the request is repeated.
func (e *envoy) drain(ctx context.Context, admin *admin, bound time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for requested := false; ; {
		if !requested {
			requested = admin.drain(ctx) == nil
		}
		open, err := admin.connections(ctx)
		if err == nil && open == 0 {
			break
		}
		select {
		case <-look.C:
			continue
		case <-e.done:
		case <-ctx.Done():
			log.Warn("connections are still open after the bound of a drain and are cut", "waited", bound, "open", open,
				"error", err)
		}
		break
	}
	e.terminate()
}

// terminate sends SIGTERM, and kills Envoy after 5 s.
func (e *envoy) terminate() {
	e.process.Signal(syscall.SIGTERM)
	select {
	case <-e.done:
	case <-time.After(5 * time.Second):
		e.kill()
	}
}

// lineWriter forwards whole lines only, so that the logs of Envoy and the agent do not mix within a line.
type lineWriter struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte
}

// Write implements io.Writer.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n'); end >= 0 {
		l.to.Write(l.rest[:end+1])
		l.rest = append([]byte(nil), l.rest[end+1:]...)
	}
	return len(p), nil
}

// flush forwards a last line without a newline.
func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.to.Write(append(l.rest, '\n'))
		l.rest = nil
	}
}
