package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/wait"
)

// reconnectPause is the pause between attempts to reach an agent that has not started yet.
const reconnectPause = 100 * time.Millisecond

// serveCommands serves [Drain] and [WaitReady] on the control socket, which only this user can open.
func (a *agent) serveCommands(ctx context.Context, parts *errgroup.Group) error {
	if a.ControlSocket == "" {
		return nil
	}
	listener, err := listenSocket(a.ControlSocket)
	if err != nil {
		return fmt.Errorf("--control-socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		a.Log.Info("draining, by weft-dp drain")
		a.startDraining()
		if err := a.awaitDrained(r.Context()); err != nil {
			fmt.Fprintf(w, "drained without a confirmation of the control plane: %v\n", err)
			return
		}
		fmt.Fprintln(w, "drained: no client sends requests here")
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if _, err := a.ready.await(r.Context(), func(ready bool) bool { return ready }); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 8 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() error {
		server.Serve(listener)
		return nil
	})
	return nil
}

// listenSocket opens a unix socket, in place of one that a killed agent left.
func listenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("%s is in use by another agent", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o600)
}

// Drain makes clients stop sending requests to the proxy of the agent at a control socket. It returns when they do,
// with a sentence. Without an agent there is nothing to drain.
func Drain(ctx context.Context, socket string) (string, error) {
	said, err := call(ctx, socket, http.MethodPost, "/drain")
	if absent(err) {
		return "no agent serves " + socket + ", so there is nothing to drain\n", nil
	}
	return said, err
}

// WaitReady returns when the agent at a control socket is ready. It waits for an agent that has not started yet.
func WaitReady(ctx context.Context, socket string) error {
	for {
		_, err := call(ctx, socket, http.MethodGet, "/ready")
		if !absent(err) {
			return err
		}
		if err := wait.Sleep(ctx, reconnectPause); err != nil {
			return err
		}
	}
}

// absent reports whether an error means that no agent serves the socket.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func call(ctx context.Context, socket, method, path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://weft-dp"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}
