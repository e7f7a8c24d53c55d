// Command application is the program of the Pods in the tests of a Kubernetes node.
//
//	application pause      waits until it is stopped, as the container of a Pod's sandbox
//	application serve      serves HTTP on PORT: each response has the name of the Pod and the verified client;
//	                       where TLS is set, with TLS of its own
//	application relay      serves HTTP on PORT: GET /?url=URL sends a request from this Pod, and with &sni=SNI
//	                       on a new connection with that SNI, by any certificate;
//	                       POST /traffic?url=URL&rate=N sends N requests a second until DELETE /traffic?url=URL
//	application get URL    ends with an error unless URL responds with 200
//
// PORT is 8080 by default.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weft/internal/demo"
	"weft/internal/traffic"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: application pause|serve|relay|get")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command string, args []string) error {
	switch command {
	case "pause":
		<-ctx.Done()
		return nil
	case "serve":
		name, _ := os.Hostname()
		return serve(ctx, demo.Service(cmp.Or(os.Getenv("NAME"), name), name), os.Getenv("TLS") != "")
	case "relay":
		mux := http.NewServeMux()
		mux.HandleFunc("GET /", relay)
		g := generator{runs: map[string]*traffic.Run{}}
		mux.HandleFunc("POST /traffic", g.start)
		mux.HandleFunc("DELETE /traffic", g.stop)
		return serve(ctx, mux, false)
	case "get":
		return get(ctx, args)
	}
	return fmt.Errorf("%s: unknown command", command)
}

// serve serves until ctx ends, and then until the open requests have responses.
func serve(ctx context.Context, handler http.Handler, encrypted bool) error {
	server := &http.Server{Addr: ":" + cmp.Or(os.Getenv("PORT"), "8080"), Handler: handler,
		ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	listen := server.ListenAndServe
	if encrypted {
		config, err := demo.AnyCertificate()
		if err != nil {
			return err
		}
		server.TLSConfig, listen = config, func() error { return server.ListenAndServeTLS("", "") }
	}
	go func() { ended <- listen() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	return server.Shutdown(context.Background())
}

// relayed is the response of a relay: that of the URL, or an error.
type relayed struct {
	Status int
	Body   []byte
	Error  string `json:",omitempty"`
}

// relay sends a request to the URL, with this Pod's connections.
func relay(w http.ResponseWriter, r *http.Request) {
	var result relayed
	query, client := r.URL.Query(), http.DefaultClient
	if sni := query.Get("sni"); sni != "" {
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{ServerName: sni, InsecureSkipVerify: true}}}
	}
	status, body, err := request(r.Context(), client, query.Get("url"))
	if result.Status, result.Body = status, body; err != nil {
		result.Error = err.Error()
	}
	_ = json.NewEncoder(w).Encode(result)
}

func request(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func get(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: application get URL")
	}
	status, body, err := request(ctx, http.DefaultClient, args[0])
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, body)
	}
	return err
}
