package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weft/internal/server/servertest"
)

// startPlane starts a control plane with flags of `weft cp run`. The command line finds its administrator's socket.
func startPlane(t *testing.T, flags ...string) *servertest.Plane {
	t.Helper()
	if os.Getenv("WEFT_CONFIG") == "" { // else the test has started another one
		t.Setenv("WEFT_CONFIG", filepath.Join(t.TempDir(), "config"))
	}
	links, err := socketLinks()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for i := 0; i < len(flags); i += 2 {
		values[settingOf[strings.TrimPrefix(flags[i], "--")]] = flags[i+1]
	}
	return servertest.Start(t, servertest.Options{Settings: values, SocketLinks: links})
}

func weft(t *testing.T, api string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"--api", "http://" + api}, args...), nil, &out, &errs); code != 0 {
		t.Fatalf("weft %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String()
}

// anyPorts has `weft cp run` listen on free ports: another control plane of the machine may have the usual ones.
func anyPorts(t *testing.T) {
	t.Helper()
	for _, server := range []string{"API_SERVER_HTTP", "API_SERVER_HTTPS", "DP_SERVER", "DIAGNOSTICS_SERVER"} {
		t.Setenv("KUMA_"+server+"_PORT", "0")
	}
}

// TestControlPlaneRun: `weft cp run` logs that it is ready, and ends without an error at SIGTERM.
func TestControlPlaneRun(t *testing.T) {
	t.Setenv("WEFT_CONFIG", filepath.Join(t.TempDir(), "config"))
	anyPorts(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := regexp.MustCompile(`control plane is ready.* mode=zone zone=east .* api=\S+:\d+ apiOverTLS=\S+:\d+ ` +
		`dataPlane=\S+:\d+ diagnostics=\S+:\d+ zones=off adminSocket=\S+/admin.sock`)
	log := &callAtMatch{pattern: ready, call: cancel}
	if code := run(ctx, []string{"cp", "run", "--data-dir", t.TempDir(), "--zone", "east"}, nil, io.Discard,
		log); code != 0 || !log.matched {
		t.Errorf("it ended with %d:\n%s", code, log.text.String())
	}
}

// callAtMatch is a log that makes a call at the first line that matches.
type callAtMatch struct {
	pattern *regexp.Regexp
	call    func()
	matched bool
	text    bytes.Buffer
}

func (c *callAtMatch) Write(line []byte) (int, error) {
	if !c.matched && c.pattern.Match(line) {
		c.matched = true
		c.call()
	}
	return c.text.Write(line)
}
