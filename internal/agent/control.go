package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"weft/internal/wire"
)

// controlPlane is the connection that everything shares.
type controlPlane struct {
	address string // HOST:PORT
	caFile  string
	tls     *tls.Config
	conn    *grpc.ClientConn
	agent   wire.AgentClient
}

func connect(c Config) (*controlPlane, error) {
	u, err := url.Parse(c.ControlPlane)
	if err != nil || u.Scheme != "https" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("--cp-address is %q, want https://HOST:PORT, for example https://127.0.0.1:5678", c.ControlPlane)
	}
	roots, err := readRoots(c.CAFile)
	if err != nil {
		return nil, err
	}
	if _, err := readToken(c.TokenFile); err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient(u.Host,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithPerRPCCredentials(token{file: c.TokenFile}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("--cp-address %s: %w", c.ControlPlane, err)
	}
	return &controlPlane{address: u.Host, caFile: c.CAFile, tls: config, conn: conn, agent: wire.NewAgentClient(conn)}, nil
}

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
		return "", fmt.Errorf("%s (--dataplane-token-file) is empty; make a token with `weft generate dataplane-token`", file)
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
		log.Warn("not registered yet, trying again", "address", p.address, "error", reason(err))
		retry.wait(ctx)
	}
}

func (p *controlPlane) tryRegister(ctx context.Context, document []byte) (*wire.RegisterResponse, error) {
	if err := p.trust(ctx); err != nil {
		return nil, err
	}
	return p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: document})
}

// trust finds out whether the certificate of whoever answers is believed: of that gRPC tells no more than
// that the connection failed, as if waiting could help.
func (p *controlPlane) trust(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	config := p.tls.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return err
	}
	return conn.Close()
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
		return fmt.Errorf("the control plane at %s is not trusted: %w; give its CA with --ca-cert-file (now %s)", p.address, untrusted.Err, p.caFile)
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return fmt.Errorf("%s does not speak TLS; give the control plane's data plane server with --cp-address (port 5678 by default)", p.address)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("the control plane at %s refuses the token or what it is used for: %s", p.address, reason(err))
	case codes.Unimplemented:
		return fmt.Errorf("%s is no weft control plane's data plane server (port 5678 by default): %s", p.address, reason(err))
	}
	return fmt.Errorf("the control plane at %s: %s", p.address, reason(err))
}

// reason is an error without gRPC's own words around it.
func reason(err error) string { return status.Convert(err).Message() }
