package access

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
)

// Who knocks a thousand times in a second fills two lines.
func TestDenialsAreCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := NewDenials(slog.New(slog.NewTextHandler(&log, nil)))
		said := func() string {
			synctest.Wait()
			r.mu.Lock() // under which it writes
			defer r.mu.Unlock()
			return log.String()
		}
		lines := func() int { return strings.Count(said(), "\n") }
		for range 1000 {
			r.Note("a caller is denied", "from", "192.0.2.7")
		}
		if lines() != 1 {
			t.Errorf("at once:\n%s", said())
		}
		time.Sleep(1500 * time.Millisecond)
		if lines() != 2 || !strings.Contains(said(), "count=999") {
			t.Errorf("a second later:\n%s", said())
		}
		time.Sleep(time.Minute)
		_, _ = r.Write([]byte("tls: bad certificate\n"))
		if lines() != 3 || !strings.Contains(said(), `reason="tls: bad certificate"`) {
			t.Errorf("after a quiet minute:\n%s", said())
		}
		time.Sleep(time.Minute)
		if lines() != 3 {
			t.Errorf("without callers:\n%s", said())
		}
	})
}
