package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"weft/internal/traffic"
)

// maxConnections bounds the connections to a URL. After a stall of the machine, the requests that are due share them. A
// new connection for each would use more of the machine than all requests at the usual rate, and the stall would not
// end.
const maxConnections = 256

// generator sends traffic from this Pod, one run to each URL at a time.
type generator struct {
	mu   sync.Mutex
	runs map[string]*traffic.Run // by URL
}

// start starts the traffic to the URL: at the rate in requests a second, each with the timeout.
func (g *generator) start(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	rate, err := strconv.Atoi(query.Get("rate"))
	if err != nil || rate <= 0 {
		http.Error(w, "rate: want requests a second", http.StatusBadRequest)
		return
	}
	timeout, err := time.ParseDuration(query.Get("timeout"))
	if err != nil {
		http.Error(w, "timeout: "+err.Error(), http.StatusBadRequest)
		return
	}
	url := query.Get("url")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs[url] != nil {
		http.Error(w, "the traffic to "+url+" has started already", http.StatusConflict)
		return
	}
	transport := &http.Transport{MaxIdleConnsPerHost: maxConnections, MaxConnsPerHost: maxConnections}
	g.runs[url] = traffic.Start(rate, timeout, traffic.SendOver(transport, http.MethodGet, url))
}

// stop ends the traffic to the URL, and responds with the results of all its requests.
func (g *generator) stop(w http.ResponseWriter, r *http.Request) {
	url := r.URL.Query().Get("url")
	g.mu.Lock()
	run := g.runs[url]
	delete(g.runs, url)
	g.mu.Unlock()
	if run == nil {
		http.Error(w, "no traffic to "+url+" has started", http.StatusConflict)
		return
	}
	_ = json.NewEncoder(w).Encode(run.Stop())
}
