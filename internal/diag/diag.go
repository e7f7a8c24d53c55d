// Package diag serves the diagnostics of a process over HTTP: its CPU clock, memory and profiles.
//
// It authenticates no caller; the server decides which callers it admits.
package diag

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
)

// Process has the usage of a process.
type Process struct {
	CPUNanoseconds int64  `json:"cpuNanoseconds"` // user and system time since its start, exact
	RSSBytes       uint64 `json:"rssBytes"`       // 0 where the system doesn't tell
	HeapBytes      uint64 `json:"heapBytes"`
	Goroutines     int    `json:"goroutines"`
}

// Handler serves:
//
//	GET  /debug/process   Process, in JSON
//	POST /debug/gc        a collection, with memory given back to the system; answers Process
//	GET  /debug/pprof/    profiles of the Go runtime
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/process", func(w http.ResponseWriter, _ *http.Request) { respond(w) })
	mux.HandleFunc("POST /debug/gc", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory()
		respond(w)
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func respond(w http.ResponseWriter) {
	process, err := Read()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(process) // the reader has disconnected
}

// Read looks at this process.
func Read() (Process, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return Process{}, fmt.Errorf("reading this process's CPU time: %w", err)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return Process{
		CPUNanoseconds: usage.Utime.Nano() + usage.Stime.Nano(),
		RSSBytes:       rss(),
		HeapBytes:      memory.HeapAlloc,
		Goroutines:     runtime.NumGoroutine(),
	}, nil
}

// rss is the second number of /proc/self/statm, in pages.
func rss() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
