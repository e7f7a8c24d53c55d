// Package mesh runs control planes and proxies as programs, for end-to-end tests and measurements.
package mesh

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weft/internal/adminsocket"
	"weft/internal/client"
	"weft/internal/process"
	"weft/internal/testnet"
)

// Plane is a control plane in a process of its own, with its data and with ports of this machine.
type Plane struct {
	*process.Process
	Data      string // the data directory
	Ports     Ports
	DataPlane string // HOST:PORT
	ZoneSync  string // HOST:PORT
	// Admin is a client of the administrator's socket, which serves the API and the diagnostics.
	Admin *client.Client
	// Roots sign the certificates of its servers. It has them once it has started.
	Roots *x509.CertPool
}

// Ports are the ports of a control plane.
type Ports struct{ API, DataPlane, Diagnostics, Webhooks, ZoneSync int }

// NewPlane returns a control plane that is not started, with its data and its log in dir. weft is the program. Settings
// are those of the environment, as NAME=VALUE: of equal names, the last one has the value.
func NewPlane(weft, dir, name string, settings ...string) (*Plane, error) {
	ports, err := testnet.Ports(5)
	if err != nil {
		return nil, err
	}
	local := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	p := &Plane{Data: filepath.Join(dir, "data"), Ports: Ports{ports[0], ports[1], ports[2], ports[3], ports[4]},
		DataPlane: local(ports[1]), ZoneSync: local(ports[4])}
	p.Process = process.New(dir, name, weft, "cp", "run", "--data-dir", p.Data)
	p.Env = append(os.Environ(), "KUMA_API_SERVER_HTTPS_PORT=0", "KUMA_INTER_CP_SERVER_PORT=0")
	for i, server := range []string{"API_SERVER_HTTP", "DP_SERVER", "DIAGNOSTICS_SERVER",
		"RUNTIME_KUBERNETES_ADMISSION_SERVER", "MULTIZONE_GLOBAL_KDS_GRPC"} {
		p.Env = append(p.Env, fmt.Sprintf("KUMA_%s_PORT=%d", server, ports[i]))
	}
	p.Env = append(p.Env, settings...)
	p.Admin, err = client.New(client.Options{Address: client.UnixScheme + filepath.Join(p.Data, adminsocket.Name)})
	return p, errors.Join(err, os.MkdirAll(dir, 0o700))
}

// CA returns the file with the CA of the control plane's servers.
func (p *Plane) CA() string { return filepath.Join(p.Data, "ca.crt") }

// Run starts the control plane, again once it has ended, and returns when it is ready, or an error after the limit.
func (p *Plane) Run(limit time.Duration) error {
	if err := p.Start(); err != nil {
		return err
	}
	err := p.Await(limit, "it responds on the administrator's socket", func(ctx context.Context) error {
		return p.Admin.Get(ctx, "/ready", nil, new([]byte))
	})
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(p.CA())
	if err != nil {
		return err
	}
	p.Roots = x509.NewCertPool()
	if !p.Roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate in PEM", p.CA())
	}
	return nil
}

// Zone returns the settings of a control plane that joins this one, which is global, as a zone. It writes the token of
// the zone into the folder of the data.
func (p *Plane) Zone(ctx context.Context, zone string) ([]string, error) {
	token, err := ZoneToken(ctx, p.Admin, zone)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(p.Data), zone+".token")
	return p.ZoneBy(zone, file), os.WriteFile(file, []byte(token), 0o600)
}

// ZoneBy returns the settings of [Plane.Zone] with the token of a file.
func (p *Plane) ZoneBy(zone, tokenFile string) []string {
	return []string{
		"KUMA_MODE=zone",
		"KUMA_MULTIZONE_ZONE_NAME=" + zone,
		"KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS=grpcs://" + p.ZoneSync,
		"KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE=" + p.CA(),
		"KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH=" + tokenFile,
	}
}
