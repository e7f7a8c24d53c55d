package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"weft/internal/wire"
)

// controlPlane is the connection that everything shares. It is to one of the instances, and goes over to
// the next one where it fails.
type controlPlane struct {
	addresses []string // HOST:PORT, in the order in which they are tried
	caFile    string
	tls       *tls.Config
	conn      *grpc.ClientConn
	agent     wire.AgentClient
}

func connect(c Config) (*controlPlane, error) {
	addresses, err := controlPlanes(c.ControlPlane)
	if err != nil {
		return nil, err
	}
	roots, err := readRoots(c.CAFile)
	if err != nil {
		return nil, err
	}
	if _, err := readToken(c.TokenFile); err != nil {
		return nil, err
	}
	p := &controlPlane{
		addresses: addresses, caFile: c.CAFile,
		tls: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
	p.conn, err = p.dial(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--cp-address %s: %w", p, err)
	}
	p.agent = wire.NewAgentClient(p.conn)
	return p, nil
}

// controlPlanes reads the addresses of one or several control planes. Each agent begins at another one, so
// that they share the proxies.
func controlPlanes(urls []string) ([]string, error) {
	var addresses []string
	for _, text := range urls {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" ||
			strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("--cp-address is %q, want https://HOST:PORT, for example https://127.0.0.1:5678",
				text)
		}
		addresses = append(addresses, u.Host)
	}
	if len(addresses) == 0 {
		return nil, errors.New("--cp-address is empty, want https://HOST:PORT, for example https://127.0.0.1:5678")
	}
	first := rand.IntN(len(addresses))
	return append(addresses[first:len(addresses):len(addresses)], addresses[:first]...), nil
}

// dial answers a connection that is made when it is first used. gRPC tries the addresses in their order, the
// next one as soon as one refuses, or after a quarter of a second.
func (p *controlPlane) dial(tokenFile string) (*grpc.ClientConn, error) {
	instances := manual.NewBuilderWithScheme("weft")
	var state resolver.State
	for _, address := range p.addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: hostOf(address)})
	}
	instances.InitialState(state)
	return grpc.NewClient(instances.Scheme()+":///control-plane",
		grpc.WithResolvers(instances),
		grpc.WithTransportCredentials(credentials.NewTLS(p.tls)),
		grpc.WithPerRPCCredentials(token{file: tokenFile}),
		grpc.WithWriteBufferSize(wire.WriteBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// String names the addresses.
func (p *controlPlane) String() string { return strings.Join(p.addresses, ", ") }

func (p *controlPlane) close() { p.conn.Close() }

func readRoots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the control plane's CA (--ca-cert-file): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s (--ca-cert-file) holds no certificate in PEM", file)
	}
	return roots, nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the token (--dataplane-token-file): %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s (--dataplane-token-file) is empty; make a token with `weft generate dataplane-token`",
			file)
	}
	return token, nil
}

// token proves who the agent is, in every call's metadata.
type token struct{ file string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := readToken(t.file)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return true }

// register writes the Dataplane. It tries again for as long as waiting can help, and answers an error
// that says what to do where it can't.
func (p *controlPlane) register(ctx context.Context, document []byte, log *slog.Logger) (mesh, name string, err error) {
	for retry := newBackoff(); ; {
		answer, err := p.tryRegister(ctx, document)
		if err == nil {
			return answer.Mesh, answer.Name, nil
		}
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		if isFinal(err) {
			return "", "", p.explain(err)
		}
		log.Warn("not registered yet, trying again", "controlPlane", p, "error", reason(err))
		retry.waitAtLeast(ctx, pauseOf(err))
	}
}

func (p *controlPlane) tryRegister(ctx context.Context, document []byte) (*wire.RegisterResponse, error) {
	if err := p.trust(ctx); err != nil {
		return nil, err
	}
	return p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: document})
}

// trust finds out whether the certificate of the first instance that answers is believed: of that gRPC tells
// no more than that the connection failed, as if waiting could help.
func (p *controlPlane) trust(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var failed error
	for _, address := range p.addresses {
		config := p.tls.Clone()
		config.NextProtos = []string{"h2"}
		dialer := tls.Dialer{Config: config, NetDialer: &net.Dialer{Timeout: 2 * time.Second}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// isFinal says that trying the same again can't help.
func isFinal(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	if errors.As(err, &untrusted) || errors.As(err, &plain) {
		return true
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		return true
	}
	return false
}

// explain says what a final error means to whoever started the agent.
func (p *controlPlane) explain(err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("the control plane at %s is not trusted: %w; give its CA with --ca-cert-file (now %s)", p,
			untrusted.Err, p.caFile)
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return fmt.Errorf("%s does not speak TLS; give the control plane's data plane server with --cp-address (port "+
			"5678 by default)", p)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("the control plane at %s refuses the token or what it is used for: %s", p, reason(err))
	case codes.Unimplemented:
		return fmt.Errorf("%s is no weft control plane's data plane server (port 5678 by default): %s", p, reason(err))
	}
	return fmt.Errorf("the control plane at %s: %s", p, reason(err))
}

// pauseOf is how long the control plane asks the agent to wait (google.rpc.RetryInfo); 0: it does not say.
func pauseOf(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return 0
}

// reason is an error without gRPC's own words around it.
func reason(err error) string { return status.Convert(err).Message() }
