package diag

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

func request(t *testing.T, method, path string) Process {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s %s answers %d: %s", method, path, w.Code, w.Body)
	}
	var p Process
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcess(t *testing.T) {
	before := request(t, http.MethodGet, "/debug/process")
	if before.HeapBytes == 0 || before.Goroutines == 0 {
		t.Errorf("a process without heap or goroutines: %+v", before)
	}
	if runtime.GOOS == "linux" && before.RSSBytes < before.HeapBytes/2 {
		t.Errorf("resident memory is in bytes; got %d with %d of heap", before.RSSBytes, before.HeapBytes)
	}
	var sum uint64
	after := before
	for after.CPUNanoseconds < before.CPUNanoseconds+1e6 { // one millisecond of work is seen
		for i := range uint64(1e6) {
			sum += i * sum
		}
		after = request(t, http.MethodGet, "/debug/process")
	}
	if after.CPUNanoseconds > before.CPUNanoseconds+60e9 {
		t.Errorf("CPU time is in nanoseconds; it rose by %d", after.CPUNanoseconds-before.CPUNanoseconds)
	}
}

func TestCollectionGivesMemoryBack(t *testing.T) {
	garbage := make([]byte, 64<<20)
	for i := range garbage {
		garbage[i] = 1
	}
	before := request(t, http.MethodGet, "/debug/process")
	garbage = nil
	after := request(t, http.MethodPost, "/debug/gc")
	if after.HeapBytes+(32<<20) > before.HeapBytes {
		t.Errorf("the heap went from %d to %d bytes after 64 MiB became garbage", before.HeapBytes, after.HeapBytes)
	}
	_ = garbage
}
