package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"weft/internal/client"
	"weft/internal/diag"
	"weft/internal/xds"
)

// FloorConfig is the first configuration that the bare server sends to each proxy.
type FloorConfig struct {
	Bytes    int // of all messages
	Messages int
}

// floor is a bare server: grpc-go and TLS with the control plane's options, and no control plane. It sends the same
// bytes to every stream and reads the requests. Its cost is the minimum for any control plane.
type floor struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	first []encoded

	mu      sync.Mutex
	streams map[chan encoded]struct{}
	changes int
}

// floorAddress is the endpoint that is added to and removed from the assignment floorAssignment.
const (
	floorAssignment = "floor"
	floorAddress    = "10.0.0.1"
	changeBytes     = 680 // the size of a real change of one endpoint in an assignment of two
)

// ServerAddresses has the addresses of the floor.
type ServerAddresses struct {
	Address     string `json:"address"`     // HOST:PORT of the data plane server
	Diagnostics string `json:"diagnostics"` // URL
	Roots       string `json:"roots"`       // PEM
}

// StartFloor starts the bare server in a process of its own, which stop ends.
type StartFloor func(context.Context, FloorConfig) (where ServerAddresses, stop func() error, err error)

// openedFloor is a running bare server with the fleet that connects to it.
type openedFloor struct {
	where       ServerAddresses
	stop        func() error
	diagnostics *client.Client
	fleet       *fleet
}

// openFloor starts a bare server. Each proxy of its fleet is complete once it has the server's first messages.
func openFloor(ctx context.Context, start StartFloor, config FloorConfig) (o *openedFloor, err error) {
	where, stop, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("starting the bare server: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	target, err := where.target()
	if err != nil {
		return nil, err
	}
	diagnostics, err := client.New(client.Options{Address: where.Diagnostics})
	if err != nil {
		return nil, err
	}
	fleet := newFleet(target, func(p *proxy) bool { return p.messages >= config.Messages })
	return &openedFloor{where, stop, diagnostics, fleet}, nil
}

// ServeFloor runs a bare server on free ports of 127.0.0.1 until the context ends. It writes [ServerAddresses], as one
// line of JSON, once it listens.
func ServeFloor(ctx context.Context, config FloorConfig, out io.Writer) error {
	certificate, roots, err := selfSigned()
	if err != nil {
		return err
	}
	plane, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bare := &floor{streams: map[chan encoded]struct{}{}}
	for range config.Messages {
		bare.first = append(bare.first, padded(xds.Cluster, "first", nil, config.Bytes/config.Messages))
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/", diag.Handler())
	mux.HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) { bare.change() })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	// The last codec applies: the floor sends bytes that are encoded already, as the control plane does.
	options := append(xds.ServerOptions(credentials.NewServerTLSFromCert(&certificate)),
		grpc.ForceServerCodecV2(newReader()))
	gs := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(gs, bare)
	failed := make(chan error, 2)
	go func() { failed <- gs.Serve(plane) }()
	go func() { failed <- server.Serve(control) }()
	defer gs.Stop()
	defer server.Close()
	where := ServerAddresses{plane.Addr().String(), "http://" + control.Addr().String(), roots}
	if err := json.NewEncoder(out).Encode(where); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// DeltaAggregatedResources serves one stream.
func (f *floor) DeltaAggregatedResources(
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	queue := make(chan encoded, 1)
	f.mu.Lock()
	f.streams[queue] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.streams, queue)
		f.mu.Unlock()
	}()
	ended := make(chan error, 1)
	go func() { ended <- drain(stream) }()
	for _, m := range f.first {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
	for {
		select {
		case m := <-queue:
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		case err := <-ended:
			return err
		}
	}
}

func drain(stream grpc.ServerStream) error {
	var request discoveryv3.DeltaDiscoveryRequest
	for {
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
	}
}

// change sends one change to every stream. The one before has been sent.
func (f *floor) change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
	assignment := &endpointv3.ClusterLoadAssignment{ClusterName: floorAssignment}
	if f.changes%2 == 0 {
		assignment.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: socket(floorAddress)}},
		}}}}
	}
	m := padded(xds.Endpoint, floorAssignment, assignment, changeBytes)
	for queue := range f.streams {
		queue <- m
	}
}

func socket(address string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
	}}}
}

// padded is a response with one resource and the given size, or the smallest possible one.
func padded(t xds.Type, name string, body proto.Message, size int) encoded {
	resource := &discoveryv3.Resource{Name: name, Version: "1"}
	if body != nil {
		resource = decoded(xds.NewResource(t, name, body))
	}
	response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.URL(), Nonce: "1",
		Resources: []*discoveryv3.Resource{resource}}
	const overhead = 8 // the tags and lengths that the padding makes longer
	if missing := size - proto.Size(response) - overhead; missing > 0 {
		resource.Aliases = []string{strings.Repeat("x", missing)}
	}
	wire, err := proto.Marshal(response)
	if err != nil {
		panic(fmt.Sprintf("scenario: encoding %s: %v", name, err)) // the message is the tool's own
	}
	return wire
}

func decoded(r *xds.Resource) *discoveryv3.Resource {
	var resource discoveryv3.Resource
	if err := proto.Unmarshal(r.Wire, &resource); err != nil {
		panic(fmt.Sprintf("scenario: decoding %s: %v", r.Name, err)) // the message is the tool's own
	}
	return &resource
}

// selfSigned returns a certificate for 127.0.0.1, and the same as its root, in PEM.
func selfSigned() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(root), nil
}
