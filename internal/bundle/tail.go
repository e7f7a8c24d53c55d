package bundle

import (
	"bytes"
	"io"
	"sync"
)

// Tail keeps the last lines of a log, so many bytes of them at most.
type Tail struct {
	mu    sync.Mutex
	most  int
	lines []byte
}

// NewTail makes an empty one.
func NewTail(most int) *Tail { return &Tail{most: most} }

// Write implements io.Writer. A full tail drops half of its content, so that a line does not copy the rest.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, p...)
	if len(t.lines) > t.most {
		rest := t.lines[len(t.lines)-t.most/2:]
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			rest = rest[end+1:]
		}
		t.lines = append(t.lines[:0], rest...)
	}
	return len(p), nil
}

// Copy writes the lines that are kept.
func (t *Tail) Copy(to io.Writer) error {
	t.mu.Lock()
	lines := bytes.Clone(t.lines)
	t.mu.Unlock()
	_, err := to.Write(lines)
	return err
}
