package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/testwait"
)

// rawStream is a client's side of the relayed service, with encoded frames.
func rawStream(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(testwait.Context(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+adsService+"/"+adsStream, grpc.ForceCodecV2(frames{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// serveUnix serves on a socket and returns a connection to it.
func serveUnix(t *testing.T, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// controlPlaneOf returns a control plane with a service that the relay does not know; the handler serves each stream.
func controlPlaneOf(handle func(grpc.ServerStream) error) *grpc.Server {
	server := grpc.NewServer(grpc.ForceServerCodecV2(frames{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(math.MaxInt32))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: adsService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: adsStream, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return handle(s) }}},
	}, nil)
	return server
}

func newTestRelay(t *testing.T, up *grpc.Server) *grpc.ClientConn {
	t.Helper()
	a := &agent{control: &controlPlane{conn: serveUnix(t, up)}, certs: newWorkloadCerts()}
	return serveUnix(t, a.newRelay())
}

func TestTheRelayChangesNoByte(t *testing.T) {
	down := newTestRelay(t, controlPlaneOf(func(s grpc.ServerStream) error {
		return forwardMessages(s, s) // an echo
	}))
	stream := rawStream(t, down)
	for _, sent := range []frame{{}, {0xff, 0xff, 0xff}, bytes.Repeat([]byte("no protocol buffer "), 500_000)} {
		if err := stream.SendMsg(&sent); err != nil {
			t.Fatal(err)
		}
		var got frame
		if err := stream.RecvMsg(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("%d bytes became %d other ones", len(sent), len(got))
		}
	}
}

func TestALostUpstreamEndsEnvoysStream(t *testing.T) {
	down := newTestRelay(t, controlPlaneOf(func(s grpc.ServerStream) error {
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		return status.Error(codes.PermissionDenied, "not a member any more")
	}))
	stream := rawStream(t, down)
	if err := stream.SendMsg(&frame{1}); err != nil {
		t.Fatal(err)
	}
	var f frame
	if err := stream.RecvMsg(&f); status.Code(err) != codes.PermissionDenied ||
		status.Convert(err).Message() != "not a member any more" {
		t.Errorf("Envoy is told %v, want what the control plane said", err)
	}
}

func TestAnEnvoyThatGoesEndsItsUpstream(t *testing.T) {
	ended := make(chan error, 1)
	down := newTestRelay(t, controlPlaneOf(func(s grpc.ServerStream) error {
		var f frame
		s.RecvMsg(&f)
		ended <- s.RecvMsg(&f)
		return nil
	}))
	stream := rawStream(t, down)
	if err := stream.SendMsg(&frame{1}); err != nil {
		t.Fatal(err)
	}
	stream.CloseSend()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the control plane sees %v, want an end in order", err)
	}
}

func TestTheCertificateIsServedAndRotates(t *testing.T) {
	store := newWorkloadCerts()
	certs := store.of(identitySecret)
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{certs: store})
	client := secretv3.NewSecretDiscoveryServiceClient(serveUnix(t, server))

	whole, err := client.StreamSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	delta, err := client.DeltaSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType,
		ResourceNames: []string{identitySecret}}); err != nil {
		t.Fatal(err)
	}
	if err := delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType,
		ResourceNamesSubscribe: []string{identitySecret}}); err != nil {
		t.Fatal(err)
	}
	for _, serial := range []string{"01", "02"} {
		certs.store(&workloadCert{serial: serial, chain: []byte("chain"), key: []byte("key")})
		response, err := whole.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if response.VersionInfo != serial || len(response.Resources) != 1 {
			t.Errorf("state of the world: version %s with %d resources, want %s with one", response.VersionInfo,
				len(response.Resources), serial)
		}
		change, err := delta.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(change.Resources) != 1 || change.Resources[0].Version != serial ||
			change.Resources[0].Name != identitySecret {
			t.Errorf("delta: %v, want %s at version %s", change.Resources, identitySecret, serial)
		}
		whole.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{identitySecret},
			VersionInfo: serial, ResponseNonce: response.Nonce})
		delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResponseNonce: change.Nonce})
	}
}

func TestOrdinaryMessagesPassTheCodecToo(t *testing.T) {
	c := frames{encoding.GetCodecV2(proto.Name)}
	data, err := c.Marshal(wrapperspb.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	var got wrapperspb.StringValue
	if err := c.Unmarshal(data, &got); err != nil || got.Value != "x" {
		t.Errorf("got %q (%v)", got.Value, err)
	}
}

// A ZoneEgress presents several certificates. Envoy requests each on a stream of its own.
func TestEachCertificateIsServedUnderItsSecret(t *testing.T) {
	store := newWorkloadCerts()
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{certs: store})
	client := secretv3.NewSecretDiscoveryServiceClient(serveUnix(t, server))
	names := []string{identitySecret, "identity_shop"}
	var streams []secretv3.SecretDiscoveryService_StreamSecretsClient
	for _, name := range names {
		stream, err := client.StreamSecrets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType,
			ResourceNames: []string{name}}); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	for i, name := range names {
		store.of(name).store(&workloadCert{serial: fmt.Sprint(i), chain: []byte("chain"), key: []byte("key")})
	}
	for i, name := range names {
		response, err := streams[i].Recv()
		if err != nil {
			t.Fatal(err)
		}
		var got tlsv3.Secret
		if err := response.Resources[0].UnmarshalTo(&got); err != nil {
			t.Fatal(err)
		}
		if got.Name != name || response.VersionInfo != fmt.Sprint(i) {
			t.Errorf("%s is answered with %s, version %s", name, got.Name, response.VersionInfo)
		}
	}
}
