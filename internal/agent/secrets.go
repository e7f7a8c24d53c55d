package agent

import (
	"context"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// leafSecret is the secret by which every listener and cluster names the proxy's certificate.
	leafSecret = "identity"
	secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// secrets serves the leaf to the Envoy beside (SDS), state-of-the-world and delta, since configuration
// may ask either way. The one secret is [leafSecret]; its version is the leaf's serial.
type secrets struct {
	secret.UnimplementedSecretDiscoveryServiceServer
	leaf *watched[*leaf]
}

// StreamSecrets implements the state-of-the-world form.
func (s *secrets) StreamSecrets(stream secret.SecretDiscoveryService_StreamSecretsServer) error {
	return serveSecret(stream.Context(), s.leaf, stream.Recv, func(r *discovery.DiscoveryRequest) bool {
		return slices.Contains(r.ResourceNames, leafSecret)
	}, func(l *leaf) error {
		message, err := l.secret()
		if err != nil {
			return err
		}
		return stream.Send(&discovery.DiscoveryResponse{
			VersionInfo: l.serial, Nonce: l.serial, TypeUrl: secretType, Resources: []*anypb.Any{message},
		})
	})
}

// DeltaSecrets implements the delta form.
func (s *secrets) DeltaSecrets(stream secret.SecretDiscoveryService_DeltaSecretsServer) error {
	wanted := false // a delta request names what changes
	return serveSecret(stream.Context(), s.leaf, stream.Recv, func(r *discovery.DeltaDiscoveryRequest) bool {
		wanted = (wanted || slices.Contains(r.ResourceNamesSubscribe, leafSecret)) &&
			!slices.Contains(r.ResourceNamesUnsubscribe, leafSecret)
		return wanted
	}, func(l *leaf) error {
		message, err := l.secret()
		if err != nil {
			return err
		}
		return stream.Send(&discovery.DeltaDiscoveryResponse{
			SystemVersionInfo: l.serial, Nonce: l.serial, TypeUrl: secretType,
			Resources: []*discovery.Resource{{Name: leafSecret, Version: l.serial, Resource: message}},
		})
	})
}

// FetchSecrets is not offered: Envoy streams.
func (s *secrets) FetchSecrets(context.Context, *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "secrets are streamed")
}

// serveSecret sends the leaf once the client wants it, and each further one. Every leaf is sent once: what
// the client answers to it changes nothing.
func serveSecret[R any](ctx context.Context, leaves *watched[*leaf], recv func() (R, error), wants func(R) bool, send func(*leaf) error) error {
	requests := make(chan R)
	failed := make(chan error, 1)
	go func() {
		for {
			r, err := recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	wanted, sent := false, ""
	for {
		current, changed := leaves.load()
		if wanted && current != nil && len(current.chain) > 0 && current.serial != sent {
			if err := send(current); err != nil {
				return err
			}
			sent = current.serial
		}
		select {
		case r := <-requests:
			if wanted = wants(r); !wanted {
				sent = ""
			}
		case err := <-failed:
			return err
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *leaf) secret() (*anypb.Any, error) {
	inline := func(text []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: text}}
	}
	return anypb.New(&tlsv3.Secret{
		Name: leafSecret,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(l.chain), PrivateKey: inline(l.key),
		}},
	})
}
