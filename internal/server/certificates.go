package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"weft/internal/certfile"
	"weft/internal/pki"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// certificates are what the servers present. Clients of the API may have certificates too.
type certificates struct {
	server *certfile.Certificate // for proxies, and for zones unless they have their own
	zones  *certfile.Certificate
	api    *tls.Config // nil where the API is not served over TLS
	served servedCertificates
}

func (s *Server) loadCertificates(ctx context.Context) error {
	server, err := s.serverCertificate(ctx)
	if err != nil {
		return err
	}
	c := &certificates{server: server, zones: server}
	if sync := s.settings.ZoneSync; sync.CertFile != "" {
		if c.zones, err = certfile.NewCertificate(sync.CertFile, sync.KeyFile, s.log); err != nil {
			return fmt.Errorf("multizone.global.kds.tlsCertFile and multizone.global.kds.tlsKeyFile: %w", err)
		}
	}
	if s.settings.Mode == settings.Global {
		c.served.addFiles(c.zones, "its server of zones", "zone")
	} else {
		c.served.addFiles(server, "its server of proxies", "proxy")
	}
	if s.settings.APIOverTLS.Enabled {
		c.api, err = c.apiTLS(s.settings.APIOverTLS, s.log)
	}
	s.certificates = c
	return err
}

// apiTLS requests client certificates only where a CA of them is set. A certificate of another CA ends the handshake.
func (c *certificates) apiTLS(s settings.APIOverTLS, log *slog.Logger) (*tls.Config, error) {
	certificate := c.server
	if s.CertFile != "" {
		own, err := certfile.NewCertificate(s.CertFile, s.KeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("apiServer.https.tlsCertFile and apiServer.https.tlsKeyFile: %w", err)
		}
		certificate = own
	}
	c.served.addFiles(certificate, "its API", "user")
	config := &tls.Config{GetCertificate: certificate.ForClient, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}}
	if s.ClientCAFile == "" && s.ClientCADir == "" {
		return config, nil
	}
	users, err := certfile.NewRoots(s.ClientCAFile, s.ClientCADir, log)
	if err != nil {
		return nil, fmt.Errorf("apiServer.https.tlsCaFile and apiServer.auth.clientCertsDir: %w", err)
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if s.RequireClientCert {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.ClientCAs = users.Now()
		return current, nil
	}
	return config, nil
}

// serverCertificate returns the operator's certificate, else one of the control plane's own CA. The CA is in the store:
// agents trust every replica, and a control plane whose store was moved or restored. A store in memory keeps nothing,
// so there the CA is in the data directory.
func (s *Server) serverCertificate(ctx context.Context) (*certfile.Certificate, error) {
	c := s.settings
	if c.TLSCertFile != "" {
		certificate, err := certfile.NewCertificate(c.TLSCertFile, c.TLSKeyFile, s.log)
		if err != nil {
			return nil, fmt.Errorf("general.tlsCertFile and general.tlsKeyFile: %w", err)
		}
		return certificate, nil
	}
	var err error
	if c.Store == settings.Memory {
		_, err = pki.ServerCertificate(c.DataDir, ownAddresses(c), time.Now())
	} else {
		err = s.makeServerCertificate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the server's certificate in general.dataDir: %w", err)
	}
	return certfile.NewCertificate(filepath.Join(c.DataDir, "server.crt"), filepath.Join(c.DataDir, "server.key"),
		s.log)
}

// makeServerCertificate signs by the CA in the store. The first start stores the CA that an earlier release has kept in
// the data directory, if there is one.
func (s *Server) makeServerCertificate(ctx context.Context) error {
	ca, err := s.ownCA(ctx)
	if err != nil {
		return err
	}
	_, err = pki.ServerCertificateOf(ca, s.settings.DataDir, ownAddresses(s.settings), time.Now())
	return err
}

// ownCA returns the control plane's own CA in the store. The first call of all replicas stores it.
func (s *Server) ownCA(ctx context.Context) ([]byte, error) {
	own, err := pki.ReadServerCA(s.settings.DataDir)
	if err == nil && own == nil {
		own, err = pki.NewServerCA(time.Now())
	}
	if err != nil {
		return nil, err
	}
	result, err := s.writer.Create(ctx, kind.GlobalSecrets.Make("", pki.ServerCASecret, kind.Secret{Data: own}), nil)
	if err != nil {
		return nil, err
	}
	return result.Object.(*resource.Object[kind.Secret]).Spec.Data, nil
}

// serverTLS is the configuration of the gRPC servers.
func serverTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12}
}

// ownAddresses returns the addresses at which agents, zones and users may reach this machine's servers over TLS.
func ownAddresses(s *settings.Settings) []string {
	serves := s.DataPlane
	if s.Mode == settings.Global {
		serves = s.ZoneSync.Address
	}
	var addresses []string
	for _, at := range []settings.Address{serves, s.APIOverTLS.Address} {
		if address := net.ParseIP(at.Interface); address == nil || address.IsUnspecified() {
			addresses = append(addresses, machineAddresses()...)
		} else {
			addresses = append(addresses, at.Interface)
		}
	}
	if s.Environment == settings.OnKubernetes {
		addresses = append(addresses, serviceHost(s))
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func machineAddresses() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var addresses []string
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			addresses = append(addresses, network.IP.String())
		}
	}
	return addresses
}
