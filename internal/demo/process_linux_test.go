package demo

import (
	"context"
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
	p := newProcesses(dir, func(err error) { t.Errorf("reported as a failure: %s", err) })
	script := `setsid sh -c 'exec >lives; echo up; sleep 600; :' & wait`
	parent, err := p.start("parent", nil, "/bin/sh", "-c", script)
	if err != nil {
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

	p.kill(parent)

	if err := lives.SetReadDeadline(testwait.Deadline()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(lives); err != nil {
		t.Errorf("a descendant outlived the kill: %s", err)
	}
	p.killAll() // a second time is harmless
}

func TestAProgramThatEndsByItselfIsReported(t *testing.T) {
	reported := make(chan error, 1)
	p := newProcesses(t.TempDir(), func(err error) { reported <- err })
	if _, err := p.start("agent", nil, "/bin/sh", "-c", "echo no token; exit 3"); err != nil {
		t.Fatal(err)
	}
	if err := <-reported; err.Error() != "agent ended by itself: exit status 3" {
		t.Errorf("reported %q", err)
	}
	tails := p.tails()
	if len(tails) != 1 || tails[0].text != "no token" {
		t.Errorf("the last lines are %+v, want the program's own", tails)
	}
}

func TestRunReturnsTheOutput(t *testing.T) {
	t.Setenv("KUMA_STORE_TYPE", "memory")
	p := newProcesses(t.TempDir(), nil)
	out, err := p.run(context.Background(), "/bin/sh", "-c", "echo store=$KUMA_STORE_TYPE")
	if err != nil || out != "store=\n" {
		t.Errorf("got %q, %v, want the caller's settings left out", out, err)
	}
	_, err = p.run(context.Background(), "/bin/sh", "-c", "echo the mesh does not exist >&2; exit 1")
	if err == nil || err.Error() != "the mesh does not exist" {
		t.Errorf("got %v, want what the program said", err)
	}
}
