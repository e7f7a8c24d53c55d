package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"weft/internal/traffic"
)

// generator sends traffic from this Pod, one run at a time.
type generator struct {
	mu  sync.Mutex
	run *traffic.Run
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run != nil {
		http.Error(w, "the traffic has started already", http.StatusConflict)
		return
	}
	g.run = traffic.Start(rate, timeout, traffic.Get(query.Get("url")))
}

// stop ends the traffic, and responds with the results of all requests.
func (g *generator) stop(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.run == nil {
		http.Error(w, "no traffic has started", http.StatusConflict)
		return
	}
	tally := g.run.Stop()
	g.run = nil
	_ = json.NewEncoder(w).Encode(tally)
}
