package agent

import (
	"cmp"
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

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// secrets serves the leaves to the Envoy beside (SDS), state-of-the-world and delta, since configuration may ask
// either way. A stream is about one secret, as Envoy's are; its version is the leaf's serial.
type secrets struct {
	secret.UnimplementedSecretDiscoveryServiceServer
	leaves *leaves
}

// StreamSecrets implements the state-of-the-world form.
func (s *secrets) StreamSecrets(stream secret.SecretDiscoveryService_StreamSecretsServer) error {
	return s.serve(stream.Context(), func() (string, error) {
		r, err := stream.Recv()
		return first(r.GetResourceNames()), err
	}, func(name string, l *leaf) error {
		message, err := l.secret(name)
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
	wanted := "" // a delta request names what changes
	return s.serve(stream.Context(), func() (string, error) {
		r, err := stream.Recv()
		wanted = cmp.Or(wanted, first(r.GetResourceNamesSubscribe()))
		if slices.Contains(r.GetResourceNamesUnsubscribe(), wanted) {
			wanted = ""
		}
		return wanted, err
	}, func(name string, l *leaf) error {
		message, err := l.secret(name)
		if err != nil {
			return err
		}
		return stream.Send(&discovery.DeltaDiscoveryResponse{
			SystemVersionInfo: l.serial, Nonce: l.serial, TypeUrl: secretType,
			Resources: []*discovery.Resource{{Name: name, Version: l.serial, Resource: message}},
		})
	})
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// FetchSecrets is not offered: Envoy streams.
func (s *secrets) FetchSecrets(context.Context, *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "secrets are streamed")
}

// serve sends the leaf of the secret that the client wants, and each further one. What Envoy has from SPIRE is not
// the agent's to serve: where it had one of the agent's before, that stays. Every leaf is sent once: what
// the client answers to it changes nothing.
func (s *secrets) serve(ctx context.Context, recv func() (wanted string, err error), send func(name string, l *leaf) error) error {
	requests := make(chan string)
	failed := make(chan error, 1)
	go func() {
		for {
			wanted, err := recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- wanted:
			case <-ctx.Done():
				return
			}
		}
	}()
	wanted, sent := "", ""
	for {
		var changed <-chan struct{}
		if wanted != "" {
			var current *leaf
			if current, changed = s.leaves.of(wanted).load(); current.toServe() && current.serial != sent {
				if err := send(wanted, current); err != nil {
					return err
				}
				sent = current.serial
			}
		}
		select {
		case name := <-requests:
			if name != wanted {
				wanted, sent = name, ""
			}
		case err := <-failed:
			return err
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *leaf) secret(name string) (*anypb.Any, error) {
	inline := func(text []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: text}}
	}
	return anypb.New(&tlsv3.Secret{
		Name: name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(l.chain), PrivateKey: inline(l.key),
		}},
	})
}
