// Command agnhost stands in for the image agnhost of Kubernetes' tests, which the examples of workloads have and which
// needs a registry. It has the commands, the flags and the paths of that program, as far as the examples use them.
//
//	agnhost netexec --http-port=8080 --udp-port=8081   GET /healthz and /hostname, GET /dial sends requests of the Pod
//	agnhost grpc-health-checking --port=5000           the health service of gRPC
//	agnhost webhook --port=8444 --tls-cert-file=F --tls-private-key-file=F   GET /readyz, POST /always-deny
//	agnhost connect HOST:PORT --timeout=5s             ends with an error unless a connection opens
//	agnhost pause                                      waits until it is stopped
//	curl [-sSfk] URL                                   ends with an error unless URL responds with success
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	args := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	if args[0] != "curl" {
		args = args[1:]
	}
	if len(args) == 0 {
		log.Fatal("usage: agnhost netexec|grpc-health-checking|webhook|connect|pause")
	}
	if err := run(ctx, args[0], args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	switch command {
	case "netexec":
		http, udp := flags.Int("http-port", 8080, ""), flags.Int("udp-port", 8081, "")
		_ = flags.Parse(args)
		return netexec(ctx, *http, *udp)
	case "grpc-health-checking":
		port := flags.Int("port", 5000, "")
		flags.Int("http-port", 8080, "") // changes the health of that program
		_ = flags.Parse(args)
		return serveHealth(ctx, *port)
	case "webhook":
		port := flags.Int("port", 8444, "")
		certificate, key := flags.String("tls-cert-file", "", ""), flags.String("tls-private-key-file", "", "")
		_ = flags.Parse(args)
		return webhook(ctx, *port, *certificate, *key)
	case "connect":
		return connect(flags, args)
	case "curl":
		return curl(ctx, args)
	case "pause":
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("%s: unknown command", command)
}

// netexec serves HTTP, and UDP unless its port is negative.
func netexec(ctx context.Context, port, udp int) error {
	if udp >= 0 {
		packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", udp))
		if err != nil {
			return err
		}
		defer packets.Close()
		go respond(packets)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, hostname()) })
	mux.HandleFunc("GET /dial", dial)
	return serve(ctx, &http.Server{Addr: fmt.Sprintf(":%d", port), Handler: mux})
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// respond sends the host name for each packet.
func respond(packets net.PacketConn) {
	for buffer := make([]byte, 1500); ; {
		_, client, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = packets.WriteTo([]byte(hostname()), client)
	}
}

// dial sends a request of this Pod, by HTTP or UDP: ?protocol=P&host=H&port=N&request=R&tries=1.
func dial(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	address := net.JoinHostPort(query.Get("host"), query.Get("port"))
	var response string
	var err error
	if query.Get("protocol") == "udp" {
		response, err = exchange(address, query.Get("request"))
	} else {
		response, err = get(r.Context(), http.DefaultClient, "http://"+address+"/"+query.Get("request"))
	}
	result := map[string][]string{}
	if err == nil {
		result["responses"] = []string{response}
	} else {
		result["errors"] = []string{err.Error()}
	}
	_ = json.NewEncoder(w).Encode(result)
}

// exchange sends a packet, and returns the response.
func exchange(address, request string) (string, error) {
	connection, err := net.Dial("udp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	buffer := make([]byte, 1500)
	_ = connection.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(connection, request); err != nil {
		return "", err
	}
	n, err := connection.Read(buffer)
	return string(buffer[:n]), err
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

func serveHealth(ctx context.Context, port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}

// webhook serves the API server's admission reviews, of which each is denied.
func webhook(ctx context.Context, port int, certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /always-deny", func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"response": map[string]any{"uid": review.Request.UID, "allowed": false,
				"status": map[string]any{"message": "this webhook denies all requests"}}})
	})
	return serve(ctx, &http.Server{Addr: fmt.Sprintf(":%d", port), Handler: mux,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
}

// serve serves, with TLS where the server has a certificate, until ctx ends.
func serve(ctx context.Context, server *http.Server) error {
	server.ReadHeaderTimeout = 10 * time.Second
	context.AfterFunc(ctx, func() { _ = server.Close() })
	listen := server.ListenAndServe
	if server.TLSConfig != nil {
		listen = func() error { return server.ListenAndServeTLS("", "") }
	}
	if err := listen(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connect opens a connection. The flags of the program may follow the address.
func connect(flags *flag.FlagSet, args []string) error {
	timeout := flags.Duration("timeout", 5*time.Second, "")
	if len(args) == 0 {
		return errors.New("usage: agnhost connect HOST:PORT [--timeout=5s]")
	}
	_ = flags.Parse(args[1:])
	connection, err := net.DialTimeout("tcp", args[0], *timeout)
	if err == nil {
		connection.Close()
	}
	return err
}

// curl prints what a URL responds with. With -k it accepts every certificate.
func curl(ctx context.Context, args []string) error {
	client := &http.Client{Timeout: 10 * time.Second}
	for _, arg := range args[:max(0, len(args)-1)] {
		if strings.Contains(arg, "k") {
			client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		}
	}
	body, err := get(ctx, client, args[len(args)-1])
	fmt.Print(body)
	return err
}
