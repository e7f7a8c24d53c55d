package process

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"weft/internal/testwait"
)

// TestKillTakesTheWholeFamily: a shell starts another shell with a child in its own session, and a kill ends all of
// them. The inner processes keep a pipe open while they run.
func TestKillTakesTheWholeFamily(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "lives"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `setsid sh -c 'exec >lives; echo up; sleep 600; :' & wait`
	parent := New(dir, "parent", "/bin/sh", "-c", script)
	parent.Dir = dir
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lives, err := os.Open(filepath.Join(dir, "lives"))
	if err != nil {
		t.Fatal(err)
	}
	defer lives.Close()
	if _, err := io.ReadFull(lives, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}

	KillFamilies(parent)

	if err := lives.SetReadDeadline(testwait.Deadline()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(lives); err != nil {
		t.Errorf("a descendant outlived the kill: %s", err)
	}
	KillFamilies(parent) // a second time is harmless
}
