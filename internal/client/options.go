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
)

// Options say where a control plane is and how its caller proves who it is. All but Address may be empty.
type Options struct {
	// Address is the API's, such as "http://127.0.0.1:5681" or "https://cp.example.com:5682", or an administrator's
	// socket, such as "unix:/var/lib/weft/admin.sock".
	Address string
	// Token is a user token. It is sent over https, or to this machine.
	Token string
	// CAFile holds the certificates, in PEM, of which one must have signed the control plane's; empty: those
	// that the system believes. A control plane that made its own has it in the data directory, as ca.crt.
	CAFile string
	// CertFile and KeyFile are a client certificate and its private key, in PEM.
	CertFile, KeyFile string
	// SkipVerify takes whoever answers for the control plane, and gives it the token.
	SkipVerify bool
}

// New answers a client. The error says which option is wrong, and never repeats the token.
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
	// One request follows another here, so that HTTP/2 gains nothing, and its client hides why a server
	// has ended a connection.
	transport.Protocols = &http.Protocols{}
	transport.Protocols.SetHTTP1(true)
	return &Client{address: o.Address, base: base, token: token, http: &http.Client{
		Timeout:   time.Minute,
		Transport: transport,
		// The API sends nobody elsewhere, and whoever does shall not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// UnixScheme begins the address of an administrator's socket, whose path follows.
const UnixScheme = "unix:"

// parse returns the URL of an API, and the path of the socket that serves it, if one does.
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

// SameHost returns whether an address is of the host that the options name. A token of one host is sent to no other.
func (o Options) SameHost(address string) bool {
	own, errOwn := url.Parse(o.Address)
	other, err := url.Parse(address)
	return errOwn == nil && err == nil && own.Hostname() == other.Hostname()
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

// explained adds to an error of a connection what it means here.
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
		// In TLS 1.3 a server looks at the client certificate after the client has begun to send.
		return fmt.Errorf("%w: it may want a client certificate, or refuse the one that it got", err)
	}
	return err
}

// alert explains by which words a server refuses a client certificate: the type of a TLS alert is not
// exported. (RFC 8446, section 6.2.)
func alert(err *net.OpError) error {
	switch err.Err.Error() {
	case "tls: certificate required":
		return fmt.Errorf("%w: it wants a client certificate", err)
	case "tls: unknown certificate authority", "tls: bad certificate":
		return fmt.Errorf("%w: it refuses the client certificate, which must be signed by a CA that the control "+
			"plane's settings name", err)
	}
	return err
}
