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

// ExitError says that Envoy ended by itself, and for good.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return "exit code " + strconv.Itoa(e.Code) }

// An Envoy that dies more often than mostCrashes times within crashSpan stays dead: what is wrong with it
// is somebody's to look at, and a supervisor's back-off is slower than ours.
const (
	mostCrashes = 5
	crashSpan   = time.Minute
)

// crashes are the times of the last ones.
type crashes []time.Time

// another notes a crash, and says whether Envoy is to be started again.
func (c *crashes) another(now time.Time) bool {
	*c = slices.DeleteFunc(append(*c, now), func(at time.Time) bool { return now.Sub(at) > crashSpan })
	return len(*c) <= mostCrashes
}

// findEnvoy answers the path and version of an Envoy that is new enough: the given one, else WEFT_ENVOY,
// else `envoy` on the PATH, else the one that `make tools` unpacks beside the folder of this program.
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

// pinnedEnvoy is where `make tools` puts Envoy, seen from bin/weft-dp.
func pinnedEnvoy() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(program), "..", ".tools", "envoy", "envoy")
}

var versionPattern = regexp.MustCompile(`/(\d+\.\d+\.\d+)`)

// checkVersion reads what `envoy --version` prints: "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL".
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

// envoy is the running proxy.
type envoy struct {
	process *os.Process
	done    chan struct{}
	err     error // once done
}

// startEnvoy starts it so that it ends with the agent, however that ends.
func startEnvoy(binary, bootstrap string, drainSeconds uint32, c Config) (*envoy, error) {
	output := &lines{to: c.EnvoyOutput}
	command := exec.Command(binary,
		"--config-path", bootstrap,
		"--disable-hot-restart",
		"--drain-time-s", strconv.Itoa(int(drainSeconds)),
		"--drain-strategy", "immediate",
		"--log-level", c.EnvoyLogLevel,
	)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = endWithUs()
	e := &envoy{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends Envoy with the thread that started it, so that this one has to stay.
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

// exit is how Envoy ended: its exit code, or 128 and the signal's number, as shells have it.
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

// kill ends Envoy where it still runs.
func (e *envoy) kill() {
	e.process.Kill()
	<-e.done
}

// drain asks Envoy to drain, waits until no connection is open, at most for the bound, and ends Envoy. An Envoy that
// does not respond may be busy with its connections, so that it is asked again.
func (e *envoy) drain(ctx context.Context, admin *admin, bound time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for asked := false; ; {
		if !asked {
			asked = admin.drain(ctx) == nil
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

// terminate asks Envoy to end and insists after a while.
func (e *envoy) terminate() {
	e.process.Signal(syscall.SIGTERM)
	select {
	case <-e.done:
	case <-time.After(5 * time.Second):
		e.kill()
	}
}

// lines passes on whole lines only, so that Envoy's log and the agent's own mix line by line.
type lines struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n'); end >= 0 {
		l.to.Write(l.rest[:end+1])
		l.rest = append([]byte(nil), l.rest[end+1:]...)
	}
	return len(p), nil
}

// flush passes on a last line without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.to.Write(append(l.rest, '\n'))
		l.rest = nil
	}
}
