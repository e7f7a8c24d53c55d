// Command echo stands in for the image echo-advanced of the Gateway API's conformance suite, which needs a registry. It
// has the flags, the output and the two names of that program, as far as the suite uses them.
//
//	server --port=8080 --tls=8443 --grpc=7070 --tcp=9090   serves on the ports, each of which may be repeated
//	client URL [--method=M] [-H NAME:VALUE]... [--count=N]  sends N requests, and prints what it gets
//
// A URL has the scheme http, https, grpc or tcp. A response is lines NAME=VALUE; an empty line ends it. Redirects are
// not followed.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	log.SetFlags(0)
	run := serve
	if filepath.Base(os.Args[0]) == "client" {
		run = send
	}
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// serve serves on ports until one of them fails.
func serve(args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	var plain, secured, rpc, raw list
	flags.Var(&plain, "port", "serve HTTP on this port, or HTTPS where --tls has it too")
	flags.Var(&secured, "tls", "the ports of HTTPS")
	flags.Var(&rpc, "grpc", "serve gRPC on this port")
	flags.Var(&raw, "tcp", "serve TCP on this port")
	flags.String("crt", "", "is ignored: the certificate is made at the start")
	flags.String("key", "", "is ignored: the certificate is made at the start")
	if err := flags.Parse(args); err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	ended := make(chan error)
	listen := func(port string, serve func(net.Listener) error) {
		listener, err := net.Listen("tcp", ":"+port)
		if err == nil {
			err = serve(listener)
		}
		ended <- fmt.Errorf("port %s: %w", port, err)
	}
	for _, port := range plain {
		go listen(port, func(l net.Listener) error {
			if slices.Contains(secured, port) {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
			}
			return http.Serve(l, echoHTTP(port))
		})
	}
	for _, port := range rpc {
		go listen(port, serveGRPC)
	}
	for _, port := range raw {
		go listen(port, serveTCP)
	}
	return <-ended
}

// selfSigned returns a certificate of its own.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(1, 0, 0),
		DNSNames: []string{"echo"}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}

// hostname is the line with the name of the Pod.
func hostname() string {
	name, _ := os.Hostname()
	return "Hostname=" + name + "\n"
}

// echoHTTP responds with the request.
func echoHTTP(port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var of strings.Builder
		fmt.Fprintf(&of, "ServicePort=%s\nHost=%s\nURL=%s\nMethod=%s\nProto=%s\n%s", port, r.Host, r.URL.RequestURI(),
			r.Method, r.Proto, hostname())
		for name, values := range r.Header {
			for _, value := range values {
				fmt.Fprintf(&of, "RequestHeader=%s:%s\n", name, value)
			}
		}
		_, _ = io.WriteString(w, of.String())
	})
}

// echoMethod is the method that the server and the client of gRPC have.
const echoMethod = "/proto.EchoTestService/Echo"

// serveGRPC responds with the metadata of calls.
func serveGRPC(listener net.Listener) error {
	respond := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := decode(&emptypb.Empty{}); err != nil {
			return nil, err
		}
		var of strings.Builder
		of.WriteString(hostname())
		received, _ := metadata.FromIncomingContext(ctx)
		for name, values := range received {
			for _, value := range values {
				fmt.Fprintf(&of, "RequestHeader=%s:%s\n", name, value)
			}
		}
		return wrapperspb.String(of.String()), nil
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "proto.EchoTestService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: respond}}}, struct{}{})
	return server.Serve(listener)
}

// serveTCP writes the name of the Pod to each connection, and ends it.
func serveTCP(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			_, _ = io.WriteString(connection, "StatusCode=200\n"+hostname())
		}()
	}
}

// timeout bounds one request.
const timeout = 10 * time.Second

// send sends requests, and prints the responses. A request without a response is an error.
func send(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: client URL [--method=M] [-H NAME:VALUE]... [--count=N]")
	}
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	method := flags.String("method", http.MethodGet, "the method of HTTP")
	count := flags.Int("count", 1, "how many requests")
	var headers list
	flags.Var(&headers, "H", "NAME:VALUE, a header")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	attempt, ok := map[string]func(context.Context, *url.URL, string, []string) (string, error){
		"http": sendHTTP, "https": sendHTTP, "grpc": sendGRPC, "tcp": sendTCP}[to.Scheme]
	if !ok {
		return fmt.Errorf("%s: the scheme is %q, want http, https, grpc or tcp", args[0], to.Scheme)
	}
	for range *count {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		response, err := attempt(ctx, to, *method, headers)
		cancel()
		if err != nil {
			return err
		}
		fmt.Println(response)
	}
	return nil
}

// client trusts every certificate, and has a connection for each request.
var client = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

func sendHTTP(ctx context.Context, to *url.URL, method string, headers []string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return "", err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		if strings.EqualFold(name, "Host") {
			request.Host = value
		}
		request.Header.Add(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var of strings.Builder
	fmt.Fprintf(&of, "StatusCode=%d\n", response.StatusCode)
	for name, values := range response.Header {
		for _, value := range values {
			fmt.Fprintf(&of, "ResponseHeader=%s:%s\n", name, value)
		}
	}
	of.Write(body)
	return of.String(), nil
}

func sendGRPC(ctx context.Context, to *url.URL, _ string, headers []string) (string, error) {
	connection, err := grpc.NewClient("passthrough:///"+to.Host,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	var response wrapperspb.StringValue
	if err := connection.Invoke(ctx, echoMethod, &emptypb.Empty{}, &response); err != nil {
		return "", err
	}
	return "StatusCode=200\n" + response.Value, nil
}

func sendTCP(ctx context.Context, to *url.URL, _ string, _ []string) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.Host)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return "", err
	}
	response, err := io.ReadAll(connection)
	if err == nil && len(response) == 0 {
		err = fmt.Errorf("%s: no response", to)
	}
	return string(response), err
}
