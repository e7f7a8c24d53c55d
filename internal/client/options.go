package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"weft/internal/adminsocket"
	"weft/internal/audit"
)

// Options are the address of a control plane and the credentials of its caller. Only Address is required.
type Options struct {
	// Address is the API's, such as "http://127.0.0.1:5681" or "https://cp.example.com:5682", or an administrator's
	// socket, such as "unix:/var/lib/weft/admin.sock".
	Address string
	// Token is a user token. It is sent only over https, or to this machine.
	Token string
	// CAFile is a file with CA certificates, in PEM, one of which must have signed the control plane's certificate;
	// empty: the system's. A control plane that generated its own CA stores it as ca.crt in its data directory.
	CAFile string
	// CertFile and KeyFile are a client certificate and its private key, in PEM.
	CertFile, KeyFile string
	// Note is the note of each write in the audit log ([audit.NoteOf]); empty: none.
	Note string
	// SkipVerify skips TLS verification (insecure): every server gets the token.
	SkipVerify bool
}

// New returns a client. Its error names the invalid option, and never contains the token.
func New(o Options) (*Client, error) {
	base, socket, err := parse(o.Address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil,
			fmt.Errorf("%q is not the address of an API, want one such as http://127.0.0.1:5681 or unix:DIR/admin.sock",
				o.Address)
	}
	token := strings.TrimSpace(o.Token)
	switch secured := base.Scheme == "https"; {
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the token is none: it has spaces or characters that no token has")
	case token != "" && !secured && socket == "" && !loopback(base.Hostname()):
		return nil,
			fmt.Errorf("the token is not sent to %s, since everybody on the way could read it; use the https "+
				"address, port 5682 by default", o.Address)
	case !secured && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.SkipVerify):
		return nil, fmt.Errorf("certificates have no effect at %s; use the https address, port 5682 by default",
			o.Address)
	}
	if fault := audit.NoteFault(o.Note); fault != "" {
		return nil, errors.New("the note " + fault)
	}
	trust, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trust
	if socket != "" {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return adminsocket.Dial(ctx, socket)
		}
	}
	// Requests are sequential, so HTTP/2 would gain nothing, and its client hides the reason for which a server closed
	// a connection.
	transport.Protocols = &http.Protocols{}
	transport.Protocols.SetHTTP1(true)
	return &Client{address: o.Address, base: base, token: token, note: o.Note, http: &http.Client{
		Timeout:   time.Minute,
		Transport: proving(transport, socket),
		// The API never redirects. Another server that does must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// proving returns a transport that adds the proof of an administrator's socket to each request. Without a socket it
// adds none: the proof is sent over the socket alone.
func proving(transport http.RoundTripper, socket string) http.RoundTripper {
	if socket == "" {
		return transport
	}
	return prover{transport, socket}
}

// prover implements [http.RoundTripper].
type prover struct {
	http.RoundTripper
	socket string
}

// RoundTrip implements [http.RoundTripper].
func (p prover) RoundTrip(r *http.Request) (*http.Response, error) {
	proven := r.Clone(r.Context())
	adminsocket.Prove(proven, p.socket)
	return p.RoundTripper.RoundTrip(proven)
}

// UnixScheme is the prefix of the address of an administrator's socket, before its path.
const UnixScheme = "unix:"

// parse returns the URL of an API, and the path of its socket, if it has one.
func parse(address string) (base *url.URL, socket string, err error) {
	if path, ok := strings.CutPrefix(address, UnixScheme); ok && path != "" {
		if rest, ok := strings.CutPrefix(path, "//"); ok && strings.HasPrefix(rest, "/") {
			path = rest
		}
		return &url.URL{Scheme: "http", Host: "localhost"}, path, nil
	}
	base, err = url.Parse(address)
	return base, "", err
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func (o *Options) tlsConfig() (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.SkipVerify}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the CA's certificate: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a client certificate and its private key belong together: name both files, or neither")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, nil
}

// explained adds advice to a connection error.
func explained(err error, secured bool) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	var stranger x509.UnknownAuthorityError
	var name x509.HostnameError
	var remote *net.OpError
	switch {
	case errors.As(err, &stranger):
		return fmt.Errorf("%w; name the certificate of the CA that signed it, which of a control plane that made its "+
			"own is ca.crt in the data directory", err)
	case errors.As(err, &name):
		return fmt.Errorf("%w; use a name or address that stands in the certificate", err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return alert(remote)
	case secured && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)):
		// In TLS 1.3, a server verifies the client certificate after the client has started to send.
		return fmt.Errorf("%w: it may want a client certificate, or have rejected the one that it got", err)
	}
	return err
}

// alert adds to a TLS alert the reason for which the server rejected the client certificate. The type of an alert is
// not exported. (RFC 8446, section 6.2.)
func alert(err *net.OpError) error {
	switch err.Err.Error() {
	case "tls: certificate required":
		return fmt.Errorf("%w: it wants a client certificate", err)
	case "tls: unknown certificate authority", "tls: bad certificate":
		return fmt.Errorf("%w: it rejects the client certificate, which must be signed by a CA that the control "+
			"plane's settings name", err)
	}
	return err
}
