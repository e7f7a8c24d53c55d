// Package servertest starts control planes in the process of a test. They are the real program: stores in files, open
// ports, TLS.
package servertest

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"weft/internal/bundle"
	"weft/internal/client"
	"weft/internal/server"
	"weft/internal/settings"
)

// Options are those of one control plane.
type Options struct {
	// Settings are values by the path of the setting. They replace KUMA_* variables of the environment.
	Settings    map[string]string
	SocketLinks string
}

// Plane is a running control plane.
type Plane struct {
	server.Addresses
	DataDir string
	// Admin is a client with an administrator's permissions.
	Admin *client.Client
	// Leads reports whether this replica leads now.
	Leads func() bool
	// Log returns the last MiB of its log.
	Log func() string
	// Stop stops the control plane as SIGTERM does, and returns the error of its end. The end of the test calls it too.
	Stop func() error
	// Ended waits until the control plane ends by itself, and returns its error, which does not fail the test.
	Ended func() error
}

// output is the log of a test. What is logged after the end of the test is dropped: the number of denied callers is
// logged a second later.
type output struct {
	mu sync.Mutex
	to io.Writer // nil after the end
}

func outputOf(t *testing.T) *output {
	o := &output{to: t.Output()}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.to = nil
	})
	return o
}

// Write implements io.Writer.
func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return len(line), nil
	}
	return o.to.Write(line)
}

// defaults are settings of every control plane: any free port of the loopback interface for each listener, and the
// shortest drain time.
var defaults = map[string]string{
	"dpServer.drainTime":       "2s",
	"apiServer.http.interface": "127.0.0.1", "apiServer.http.port": "0",
	"apiServer.https.interface": "127.0.0.1", "apiServer.https.port": "0",
	"dpServer.interface": "127.0.0.1", "dpServer.port": "0",
	"diagnostics.serverInterface": "127.0.0.1", "diagnostics.serverPort": "0", "interCp.server.port": "0",
	"runtime.kubernetes.admissionServer.address": "127.0.0.1", "runtime.kubernetes.admissionServer.port": "0",
	"multizone.global.kds.grpcInterface": "127.0.0.1", "multizone.global.kds.grpcPort": "0",
}

// Start starts a control plane on free ports, in a directory of the test unless general.dataDir is set.
func Start(t *testing.T, o Options) *Plane {
	t.Helper()
	p, err := start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryStart returns the error of a start.
func TryStart(t *testing.T, o Options) error {
	t.Helper()
	_, err := start(t, o)
	return err
}

func start(t *testing.T, o Options) (*Plane, error) {
	values := maps.Clone(defaults)
	maps.Copy(values, o.Settings)
	if values["general.dataDir"] == "" {
		values["general.dataDir"] = t.TempDir()
	}
	s, _, err := settings.Load("", os.Environ(), values)
	if err != nil {
		return nil, err
	}
	tail := bundle.NewTail(1 << 20)
	log := slog.New(slog.NewTextHandler(io.MultiWriter(outputOf(t), tail), &slog.HandlerOptions{Level: s.LogLevel}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	running, err := server.Start(ctx, server.Config{
		Settings: s, Version: "test", SocketLinks: o.SocketLinks, Log: log, LogTail: tail,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	p := &Plane{Addresses: running.Addresses(), DataDir: s.DataDir, Leads: running.Leads, Log: func() string {
		var text strings.Builder
		_ = tail.Copy(&text) // a Builder never fails
		return text.String()
	}}
	ended, expected := sync.OnceValue(running.Wait), false
	p.Stop = func() error { cancel(); return ended() }
	p.Ended = func() error { expected = true; return ended() }
	t.Cleanup(func() {
		if err := p.Stop(); err != nil && !expected {
			t.Errorf("the control plane ended with %v", err)
		}
	})
	p.Admin, err = client.New(client.Options{Address: client.UnixScheme + p.AdminSocket})
	return p, err
}
