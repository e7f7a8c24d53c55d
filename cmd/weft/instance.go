package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"weft/internal/admit"
	"weft/internal/identity"
	"weft/internal/instances"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// shared says whether other instances may work on the same store.
func shared(s *settings.Settings) bool { return s.Store == settings.PostgreSQL }

// joinInstances answers this instance among those that share its store, of which it is the only one where
// no other one can.
func joinInstances(ctx context.Context, s *settings.Settings, c instances.Config) (*instances.Member, error) {
	if !shared(s) {
		return instances.Alone(c.ID), nil
	}
	self, err := instances.Join(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("joining the other instances: %w", err)
	}
	return self, nil
}

// serverCASecret is the GlobalSecret of the CA that signs the certificates of the control planes of a store.
const serverCASecret = "control-plane-ca"

// serverCertificate is what the operator gives, else one of the control plane's own CA. That one is in the
// data directory, or, where several instances share a store, in the store: then the same agents believe
// each of them.
func serverCertificate(ctx context.Context, s *settings.Settings, writer *admit.Writer) (*tls.Certificate, error) {
	if s.TLSCertFile != "" {
		certificate, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("general.tlsCertFile and general.tlsKeyFile: %w", err)
		}
		return &certificate, nil
	}
	var certificate tls.Certificate
	var err error
	if shared(s) {
		certificate, err = sharedServerCertificate(ctx, s, writer)
	} else {
		certificate, err = identity.ServerCertificate(s.DataDir, ownAddresses(s), time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("the server's certificate in general.dataDir: %w", err)
	}
	return &certificate, nil
}

// sharedServerCertificate signs by the CA in the store. The first instance stores the one that it has from
// when it was alone.
func sharedServerCertificate(ctx context.Context, s *settings.Settings, writer *admit.Writer) (none tls.Certificate, err error) {
	own, err := identity.ReadServerCA(s.DataDir)
	if err == nil && own == nil {
		own, err = identity.NewServerCA(time.Now())
	}
	if err != nil {
		return none, err
	}
	result, err := writer.Create(ctx, kind.GlobalSecrets.Make("", serverCASecret, kind.Secret{Data: own}), nil)
	if err != nil {
		return none, err
	}
	ca := result.Object.(*resource.Object[kind.Secret]).Spec.Data
	return identity.ServerCertificateOf(ca, s.DataDir, ownAddresses(s), time.Now())
}

// ownAddresses are those at which agents may reach this machine's data plane server.
func ownAddresses(s *settings.Settings) []string {
	if address := net.ParseIP(s.DataPlane.Interface); address != nil && !address.IsUnspecified() {
		return []string{s.DataPlane.Interface}
	}
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
