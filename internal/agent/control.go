package agent

import (
	"context"
	"crypto/tls"
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
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"weft/internal/wire"
)

// controlPlane is the shared connection to one of the control plane's replicas. After a failure it moves to the next
// one.
type controlPlane struct {
	addresses []string // HOST:PORT, in the order of the attempts
	caFile    string
	// rejected is what the control plane rejects with a token: "the token or its use", or that of a Pod.
	rejected string
	trusted  *trustedRoots
	conn     *grpc.ClientConn
	agent    wire.AgentClient
}

func connect(c Config) (*controlPlane, error) {
	addresses, err := controlPlanes(c.ControlPlane)
	if err != nil {
		return nil, err
	}
	trusted, err := newTrustedRoots(c.CAFile)
	if err != nil {
		return nil, err
	}
	if _, err := readToken(c.TokenFile); err != nil {
		return nil, err
	}
	p := &controlPlane{
		addresses: addresses, caFile: c.CAFile, rejected: "the token or its use", trusted: trusted,
	}
	if c.Name != "" {
		p.rejected = fmt.Sprintf("the token of %s (--dataplane-token-file %s)", c.Name, c.TokenFile)
	}
	p.conn, err = p.dial(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--cp-address %s: %w", p, err)
	}
	p.agent = wire.NewAgentClient(p.conn)
	return p, nil
}

// controlPlanes parses the addresses of the replicas. The first one is random, so that the proxies are spread over the
// replicas.
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

// dial returns a connection that is made on first use. gRPC tries the addresses in order, the next one after a rejected
// connection or a quarter of a second.
func (p *controlPlane) dial(tokenFile string) (*grpc.ClientConn, error) {
	instances := manual.NewBuilderWithScheme("weft")
	var state resolver.State
	for _, address := range p.addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: hostOf(address)})
	}
	instances.InitialState(state)
	return grpc.NewClient(instances.Scheme()+":///control-plane",
		grpc.WithResolvers(instances),
		grpc.WithTransportCredentials(p.trusted.credentials()),
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

// String returns the addresses, separated by commas.
func (p *controlPlane) String() string { return strings.Join(p.addresses, ", ") }

func (p *controlPlane) close() { p.conn.Close() }

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the token (--dataplane-token-file): %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s (--dataplane-token-file) is empty; make a token with `weft generate "+
			"dataplane-token`, or in a Pod mount the token of its service account", file)
	}
	return token, nil
}

// token is the credential of each call: the content of the token file.
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

// register registers the Dataplane. It retries while a retry can succeed; other errors say what to change.
func (p *controlPlane) register(ctx context.Context, document []byte, log *slog.Logger) (mesh, name string, err error) {
	for retry := newBackoff(); ; {
		response, err := p.tryRegister(ctx, document)
		if err == nil {
			return response.Mesh, response.Name, nil
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

// trust checks the certificate of the first replica that accepts a connection. gRPC would report a certificate error as
// a failed connection, as if a retry could succeed.
func (p *controlPlane) trust(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var failed error
	for _, address := range p.addresses {
		config := p.trusted.tls()
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

// isFinal reports whether a retry of the same request cannot succeed.
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

// explain returns a final error with advice for the user.
func (p *controlPlane) explain(err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("the control plane at %s is not trusted: %w; give its CA with --ca-cert-file (now %s)", p,
			untrusted.Err, p.caFile)
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return fmt.Errorf("%s does not use TLS; set the control plane's data plane server with --cp-address (port "+
			"5678 by default)", p)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("the control plane at %s rejects %s: %s", p, p.rejected, reason(err))
	case codes.Unimplemented:
		return fmt.Errorf("%s is no weft control plane's data plane server (port 5678 by default): %s", p, reason(err))
	}
	return fmt.Errorf("the control plane at %s: %s", p, reason(err))
}

// said returns the message of an error that is tried again, for the log.
func (p *controlPlane) said(err error) string {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return p.explain(err).Error()
	}
	return reason(err)
}

// pauseOf returns the pause that the control plane requested (google.rpc.RetryInfo), or 0.
func pauseOf(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return 0
}

// reason returns the message of an error without the prefix of gRPC.
func reason(err error) string { return status.Convert(err).Message() }
