package agent

import (
	"cmp"
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// secrets serves the leaves, and whom the machine believes, to the Envoy beside (SDS), state-of-the-world and delta,
// since configuration may ask either way. A stream is about one secret, as Envoy's are; the version of a leaf is its
// serial.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	leaves *leaves
}

// StreamSecrets implements the state-of-the-world form.
func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	return s.serve(stream.Context(), func() (string, error) {
		r, err := stream.Recv()
		return first(r.GetResourceNames()), err
	}, func(_, version string, message *anypb.Any) error {
		return stream.Send(&discoveryv3.DiscoveryResponse{
			VersionInfo: version, Nonce: version, TypeUrl: secretType, Resources: []*anypb.Any{message},
		})
	})
}

// DeltaSecrets implements the delta form.
func (s *secrets) DeltaSecrets(stream secretv3.SecretDiscoveryService_DeltaSecretsServer) error {
	wanted := "" // a delta request names what changes
	return s.serve(stream.Context(), func() (string, error) {
		r, err := stream.Recv()
		wanted = cmp.Or(wanted, first(r.GetResourceNamesSubscribe()))
		if slices.Contains(r.GetResourceNamesUnsubscribe(), wanted) {
			wanted = ""
		}
		return wanted, err
	}, func(name, version string, message *anypb.Any) error {
		return stream.Send(&discoveryv3.DeltaDiscoveryResponse{
			SystemVersionInfo: version, Nonce: version, TypeUrl: secretType,
			Resources: []*discoveryv3.Resource{{Name: name, Version: version, Resource: message}},
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
func (s *secrets) FetchSecrets(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "secrets are streamed")
}

// load is the secret of a name as it is, and a channel that is closed once there is another. Without a version there
// is none: what Envoy has from SPIRE is not the agent's to serve, and where it had one of the agent's before, that
// stays.
func (s *secrets) load(name string) (version string, secret *tlsv3.Secret, changed <-chan struct{}, err error) {
	if name == rootsSecret {
		file := rootsFile(rootFiles)
		secret, err := machineRoots(file)
		return "roots of " + file, secret, nil, err
	}
	current, changed := s.leaves.of(name).load()
	if !current.toServe() {
		return "", nil, changed, nil
	}
	return current.serial, current.secret(name), changed, nil
}

// serve sends the secret that the client wants, and each further one. Every one is sent once: what the client answers
// to it changes nothing.
func (s *secrets) serve(ctx context.Context, recv func() (wanted string, err error), send func(name, version string, message *anypb.Any) error) error {
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
			var err error
			if sent, changed, err = s.sendNext(wanted, sent, send); err != nil {
				return err
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

// sendNext sends a secret unless that was the last one to be sent, and answers which was.
func (s *secrets) sendNext(name, sent string, send func(name, version string, message *anypb.Any) error) (last string, changed <-chan struct{}, err error) {
	version, secret, changed, err := s.load(name)
	if err != nil || version == "" || version == sent {
		return sent, changed, err
	}
	message, err := anypb.New(secret)
	if err != nil {
		return sent, changed, err
	}
	return version, changed, send(name, version, message)
}

func (l *leaf) secret(name string) *tlsv3.Secret {
	inline := func(text []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
	}
	return &tlsv3.Secret{
		Name: name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(l.chain), PrivateKey: inline(l.key),
		}},
	}
}
