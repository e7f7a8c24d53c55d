package scale_test

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"weft/internal/adminsocket"
	"weft/internal/client"
	"weft/internal/diag"
	"weft/internal/process"
	"weft/internal/testnet"
	"weft/internal/testwait"
)

// plane is a control plane, in a process of its own.
type plane struct {
	t         *testing.T
	process   *process.Process
	data      string // the data directory
	dataPlane string // HOST:PORT
	zoneSync  string // HOST:PORT, of a global control plane
	webhooks  int    // the port
	ready     string // URL
	admin     *client.Client
}

// newPlane returns a control plane with an environment and ports of its own, which is not started.
func newPlane(t *testing.T, env map[string]string) *plane {
	t.Helper()
	ports, err := testnet.Ports(7)
	if err != nil {
		t.Fatal(err)
	}
	local := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	p := &plane{t: t, data: t.TempDir(), dataPlane: local(ports[2]), zoneSync: local(ports[5]), webhooks: ports[4],
		ready: fmt.Sprintf("http://%s/ready", local(ports[3]))}
	p.process = process.New(t.TempDir(), "weft", repository("bin", "weft"), "cp", "run")
	p.process.Env = os.Environ()
	for name, value := range env {
		p.process.Env = append(p.process.Env, name+"="+value)
	}
	// Of equal names, the last one has the value.
	p.process.Env = append(p.process.Env, "KUMA_GENERAL_DATA_DIR="+p.data)
	for i, name := range []string{"KUMA_API_SERVER_HTTP_PORT", "KUMA_API_SERVER_HTTPS_PORT", "KUMA_DP_SERVER_PORT",
		"KUMA_DIAGNOSTICS_SERVER_PORT", "KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_PORT",
		"KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "KUMA_INTER_CP_SERVER_PORT"} {
		p.process.Env = append(p.process.Env, fmt.Sprintf("%s=%d", name, ports[i]))
	}
	t.Cleanup(func() {
		p.process.Kill()
		if log, err := os.ReadFile(p.process.Log); t.Failed() && !reported && err == nil {
			t.Logf("the control plane of %s:\n%s", p.data, log[max(0, len(log)-4000):])
		}
	})
	if p.admin, err = client.New(client.Options{
		Address: client.UnixScheme + filepath.Join(p.data, adminsocket.Name)}); err != nil {
		t.Fatal(err)
	}
	return p
}

// start starts the control plane, again once it has ended, and returns when it is ready.
func (p *plane) start() {
	p.t.Helper()
	if err := p.process.Start(); err != nil {
		p.t.Fatalf("weft is not built, `make build` does so: %v", err)
	}
	if err := p.process.Ready(testwait.Timeout, p.ready, http.DefaultClient); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plane) stop() { p.process.Stop() }

// usage is the usage of the process.
func (p *plane) usage() (used diag.Process) {
	p.t.Helper()
	if err := p.admin.Get(p.t.Context(), "/debug/process", nil, &used); err != nil {
		p.t.Fatal(err)
	}
	return used
}

// collectGarbage is usage after a collection.
func (p *plane) collectGarbage() (used diag.Process) {
	p.t.Helper()
	if err := p.admin.Post(p.t.Context(), "/debug/gc", nil, &used); err != nil {
		p.t.Fatal(err)
	}
	return used
}

// cpu is the CPU time between two usages, in seconds.
func cpu(before, after diag.Process) float64 {
	return float64(after.CPUNanoseconds-before.CPUNanoseconds) / 1e9
}

// roots are those of the control plane's own CA.
func (p *plane) roots() *x509.CertPool {
	p.t.Helper()
	pem, err := os.ReadFile(filepath.Join(p.data, "ca.crt"))
	if err != nil {
		p.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return roots
}
