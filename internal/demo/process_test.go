package demo

import (
	"context"
	"testing"
)

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
