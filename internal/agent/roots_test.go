package agent

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
)

// Whom the machine believes is read by Envoy itself, from the file that the machine has.
func TestTheMachinesRootsAreServed(t *testing.T) {
	dir := t.TempDir()
	given := filepath.Join(dir, "given.pem")
	for _, file := range []string{given, filepath.Join(dir, "second.pem")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, env, want string }{
		{"the first that is there", "", filepath.Join(dir, "second.pem")},
		{"what SSL_CERT_FILE says", given, given},
		{"what SSL_CERT_FILE says is not there", filepath.Join(dir, "gone.pem"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("SSL_CERT_FILE", c.env)
			if got := rootsFile([]string{filepath.Join(dir, "first.pem"), filepath.Join(dir, "second.pem")}); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Where the machine has none, nobody is believed, and Envoy is not left waiting.
func TestAMachineWithoutRootsBelievesNobody(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", filepath.Join(t.TempDir(), "gone.pem"))
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{leaves: newLeaves()})
	stream, err := secretv3.NewSecretDiscoveryServiceClient(serveUnix(t, server)).StreamSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{rootsSecret}}); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var got tlsv3.Secret
	if err := response.Resources[0].UnmarshalTo(&got); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(got.GetValidationContext().GetTrustedCa().GetInlineBytes())
	if block == nil {
		t.Fatalf("%s is %v, want an authority", rootsSecret, &got)
	}
	if root, err := x509.ParseCertificate(block.Bytes); err != nil || !root.IsCA {
		t.Errorf("the authority is %v, %v", root, err)
	}
}
