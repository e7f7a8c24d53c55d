package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weft/internal/testwait"
)

// TestSweepClocks: the clock of one Envoy differs from that of the control plane and of the other Envoy. Certificates
// are valid for 24 hours, from one minute before they were signed.
func TestSweepClocks(t *testing.T) {
	if !*showSweep {
		t.Skip("starts six pairs of proxies: make sweep")
	}
	library := filepath.Join(t.TempDir(), "clock.so")
	compile := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "testdata/clock.c")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, c := range []struct {
		ahead time.Duration
		of    string
		want  int
	}{
		{-40 * time.Second, "caller", http.StatusOK},
		{-time.Hour, "caller", http.StatusServiceUnavailable},
		{-time.Hour, "web-1", http.StatusServiceUnavailable},
		{20 * time.Hour, "caller", http.StatusOK},
		{25 * time.Hour, "caller", http.StatusServiceUnavailable},
		{25 * time.Hour, "web-1", http.StatusServiceUnavailable},
	} {
		t.Run(fmt.Sprint(c.of, " ", c.ahead), func(t *testing.T) {
			w := newWorld(t)
			w.apply(secured)
			w.serve(w.listen(2, 18080), "web")
			for name, dataplane := range map[string]string{
				"web-1":  server("web-1", "web", "http", 2, 20080+i),
				"caller": caller("caller", 3, "tags: {kuma.io/service: web}"),
			} {
				w.agentFlags = nil
				if name == c.of {
					w.agentFlags = []string{"--envoy", w.withClock(library, c.ahead)}
				}
				w.proxy("default", name, dataplane)
			}
			url := fmt.Sprintf("http://%s:10001/", w.address(3))
			w.eventually(fmt.Sprintf("a request gets %d", c.want), func() error {
				client := http.Client{Timeout: testwait.Timeout}
				response, err := client.Get(url)
				if err != nil {
					return err
				}
				response.Body.Close()
				if response.StatusCode != c.want {
					return fmt.Errorf("it got %d", response.StatusCode)
				}
				return nil
			})
		})
	}
}

// withClock returns a program that runs Envoy with a clock that differs from that of the machine.
func (w *world) withClock(library string, ahead time.Duration) string {
	w.t.Helper()
	program := w.file("envoy-with-clock", fmt.Sprintf("#!/bin/sh\nCLOCK_AHEAD=%.0f LD_PRELOAD=%s exec %s \"$@\"\n",
		ahead.Seconds(), library, envoy))
	if err := os.Chmod(program, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return program
}
