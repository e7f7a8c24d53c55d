package scenario

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"weft/internal/adminsocket"
	"weft/internal/client"
)

// deployment has the control planes of a scenario: processes on free ports of 127.0.0.1, each with an empty store.
// close ends them.
type deployment struct {
	Environment
	dir     string
	running []*exec.Cmd
}

// ownPlane is one control plane of a deployment.
type ownPlane struct {
	Plane
	sync  string // HOST:PORT of zone sync
	roots string // the file of its CA

	deployment  *deployment
	name        string
	args, env   []string
	diagnostics string // HOST:PORT
	process     *exec.Cmd
}

// close ends all control planes.
func (d *deployment) close() error {
	for _, process := range d.running {
		_ = process.Process.Kill() // unless it has ended already
		_ = process.Wait()         // it was killed
	}
	return os.RemoveAll(d.dir)
}

// startGlobal starts the global control plane.
func (d *deployment) startGlobal(ctx context.Context) (*ownPlane, error) {
	return d.start(ctx, "global", "--mode", "global")
}

// startZone starts a zone of a global control plane.
func (d *deployment) startZone(ctx context.Context, global *ownPlane, zone string) (*ownPlane, error) {
	token, err := ZoneToken(ctx, global.API, zone)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(d.dir, zone+".token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return nil, err
	}
	return d.start(ctx, zone, "--zone", zone, "--zone-token-file", file,
		"--global-address", "grpcs://"+global.sync, "--global-ca-file", global.roots)
}

// ZoneToken returns a token of the global control plane for the control plane of a zone.
func ZoneToken(ctx context.Context, global *client.Client, zone string) (string, error) {
	var token []byte
	request := map[string]any{"zone": zone, "scope": []string{"cp"}, "validFor": "24h"}
	err := global.Post(ctx, "/tokens/zone", request, &token)
	return string(token), err
}

// start runs a control plane and waits until it is ready.
func (d *deployment) start(ctx context.Context, name string, args ...string) (*ownPlane, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(d.dir, name)
	p := &ownPlane{
		deployment: d, name: name, sync: localAddress(ports[3]), roots: filepath.Join(data, "ca.crt"),
		diagnostics: localAddress(ports[2]),
		args:        append([]string{"cp", "run", "--data-dir", data}, args...),
		env: []string{
			fmt.Sprintf("KUMA_API_SERVER_HTTP_PORT=%d", ports[0]), "KUMA_API_SERVER_HTTPS_ENABLED=false",
			fmt.Sprintf("KUMA_DP_SERVER_PORT=%d", ports[1]),
			fmt.Sprintf("KUMA_DIAGNOSTICS_SERVER_PORT=%d", ports[2]), "KUMA_INTER_CP_SERVER_PORT=0",
			fmt.Sprintf("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT=%d", ports[3]),
		},
	}
	p.DataPlane = localAddress(ports[1])
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	if p.Roots, err = readRoots(p.roots); err != nil {
		return nil, err
	}
	p.API, err = client.New(client.Options{Address: client.UnixScheme + filepath.Join(data, adminsocket.Name)})
	p.Diagnostics = p.API // the administrator's socket serves both
	return p, err
}

// run starts the process and waits until it is ready.
func (p *ownPlane) run(ctx context.Context) error {
	log, err := os.Create(filepath.Join(p.deployment.dir, p.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.process = exec.Command(p.deployment.Weft, p.args...)
	p.process.Env = append(os.Environ(), p.env...)
	p.process.Stdout, p.process.Stderr = log, log
	if err := p.process.Start(); err != nil {
		return fmt.Errorf("starting the control plane of %s: %w", p.name, err)
	}
	p.deployment.running = append(p.deployment.running, p.process)
	if err := awaitReady(ctx, "http://"+p.diagnostics+"/ready"); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the control plane of %s: %w; it said:\n%s", p.name, err, lastBytes(said, 2000))
	}
	return nil
}

// kill ends the process at once, without notice.
func (p *ownPlane) kill() error {
	if err := p.process.Process.Kill(); err != nil {
		return err
	}
	_ = p.process.Wait() // it was killed
	p.deployment.running = slices.DeleteFunc(p.deployment.running, func(c *exec.Cmd) bool { return c == p.process })
	return nil
}

// startTimeout is how long a control plane may take to be ready.
const startTimeout = 30 * time.Second

// awaitReady waits until the readiness URL of a control plane returns success.
func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it is not ready after %s", startTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for sendRequest(ctx, http.MethodGet, url) != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return roots, nil
}

func localAddress(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// freePorts returns different free ports.
func freePorts(n int) (ports []int, err error) {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// lastBytes returns the end of a text.
func lastBytes(text []byte, n int) []byte {
	text = bytes.TrimSpace(text)
	return text[max(0, len(text)-n):]
}
