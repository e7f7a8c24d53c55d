package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"weft/internal/admit"
	"weft/internal/certfile"
	"weft/internal/dpserver"
	"weft/internal/identity"
	"weft/internal/instances"
	"weft/internal/publish"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// shared says whether other instances may work on the same store.
func shared(s *settings.Settings) bool { return s.Store == settings.PostgreSQL }

// joinInstances answers this instance among those that share its store, of which it is the only one where
// no other one can.
func joinInstances(ctx context.Context, p *plane) (*instances.Member, error) {
	if !shared(p.settings) {
		strays := func(string) bool {
			return dpserver.LostReplicas(p.state, func(instance string) bool { return instance != p.instance })
		}
		return instances.Alone(instances.Config{ID: p.instance, Lost: publish.Bound, HasLostClients: strays}), nil
	}
	self, err := instances.Join(ctx, instances.Config{
		ID: p.instance, Store: p.rows, Writer: p.writer, Lost: publish.Bound, Log: p.log,
		LocalAcked: func(ctx context.Context, rows []resource.Key) error { return p.answer(ctx, rows) },
		HasLostClients: func(gone string) bool {
			return dpserver.LostReplicas(p.state, func(instance string) bool { return instance == gone })
		},
	})
	if err != nil {
		return nil, fmt.Errorf("joining the other instances: %w", err)
	}
	return self, nil
}

// serverCertificate is what the operator gives, else one of the control plane's own CA. That one is in the
// data directory, or, where several instances share a store, in the store: then the same agents believe
// each of them.
func serverCertificate(ctx context.Context, s *settings.Settings, writer *admit.Writer, log *slog.Logger) (*certfile.Certificate, error) {
	if s.TLSCertFile != "" {
		certificate, err := certfile.NewCertificate(s.TLSCertFile, s.TLSKeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("general.tlsCertFile and general.tlsKeyFile: %w", err)
		}
		return certificate, nil
	}
	var err error
	if shared(s) {
		err = makeSharedServerCertificate(ctx, s, writer)
	} else {
		_, err = identity.ServerCertificate(s.DataDir, ownAddresses(s), time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("the server's certificate in general.dataDir: %w", err)
	}
	return certfile.NewCertificate(filepath.Join(s.DataDir, "server.crt"), filepath.Join(s.DataDir, "server.key"), log)
}

// makeSharedServerCertificate signs by the CA in the store. The first instance stores the one that it has from
// when it was alone.
func makeSharedServerCertificate(ctx context.Context, s *settings.Settings, writer *admit.Writer) error {
	own, err := identity.ReadServerCA(s.DataDir)
	if err == nil && own == nil {
		own, err = identity.NewServerCA(time.Now())
	}
	if err != nil {
		return err
	}
	result, err := writer.Create(ctx, kind.GlobalSecrets.Make("", identity.ServerCASecret, kind.Secret{Data: own}), nil)
	if err != nil {
		return err
	}
	ca := result.Object.(*resource.Object[kind.Secret]).Spec.Data
	_, err = identity.ServerCertificateOf(ca, s.DataDir, ownAddresses(s), time.Now())
	return err
}

// ownAddresses are those at which agents, zones and users may reach this machine's servers over TLS.
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
