package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weft/internal/process"
	"weft/internal/traffic"
)

// pair starts a mesh of two instances of web and a client. It returns the first instance's agent and the client's URL
// of web.
func (w *world) pair() (first *process.Process, url string) {
	w.t.Helper()
	w.apply(secured)
	agents := w.proxies("default", server("web-1", "web", "http", 2, 20080), server("web-2", "web", "http", 4, 20080),
		caller("client", 3, "tags: {kuma.io/service: web}"))
	w.endpoints(2, "both serve")
	url = fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	return agents[0], url
}

// An application that is told to stop finishes open requests and accepts no new ones: these go to the other instance. A
// POST that meets the end of an idle connection may be lost, since no proxy can know whether the application has seen
// it.
func TestDrillAnApplicationEndsAndComesBack(t *testing.T) {
	w := newWorld(t)
	application := w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	_, url := w.pair()
	d := w.drill("the application exits cleanly, and comes back", traffic.Get(url))
	d.more(100)
	if err := application.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.endpoints(1, "it has left")
	d.more(100)
	w.service(2, 18080, "web-1")
	w.endpoints(2, "it is back")
	d.more(100)
	d.end()
}

// The agent restarts a killed Envoy. Repeatable requests are retried.
func TestDrillAKilledEnvoyIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	agent, url := w.pair()
	d := w.drill("an Envoy is killed, and started again by its agent", traffic.Get(url))
	d.more(100)
	killed := w.envoyOf(agent)
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.eventually("another Envoy runs", func() error {
		if now := w.envoyOf(agent); now == killed || now == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	w.endpoints(2, "it serves again")
	d.more(100)
	d.end()
}

// envoyOf returns the Envoy process of an agent, or 0 without one.
func (w *world) envoyOf(agent *process.Process) int {
	w.t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", agent.PID()))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, thread := range threads {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", agent.PID(), thread.Name()))
		for child := range strings.FieldsSeq(string(children)) {
			pid, _ := strconv.Atoi(child)
			return pid
		}
	}
	return 0
}

// The machines are restarted one after the other, with the duration of a rollout.
func TestDrillARollout(t *testing.T) {
	if !*showDrills {
		t.Skip("a long drill: make drills")
	}
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	first, url := w.pair()
	d := w.drill("an instance is replaced ten times", inTurn(traffic.Get(url), traffic.Post(url)))
	for range 10 {
		d.more(100)
		w.stops(first)
		first = w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
		w.endpoints(2, "it serves again")
	}
	d.end()
}
