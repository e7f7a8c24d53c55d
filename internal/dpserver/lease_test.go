package dpserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
)

// clock is a time that the test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func proxyKey(name string) graph.ProxyKey { return graph.ProxyKey{Mesh: "default", Name: name} }

// enroll registers proxies and lets their agents come.
func enroll(l *leases, names ...string) {
	for _, name := range names {
		l.registered(proxyKey(name))
		l.came(proxyKey(name))
	}
}

func ended(l *leases) string {
	keys, _ := l.due()
	var names []string
	for _, key := range keys {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestALeaseEndsFiveMinutesAfterItsAgentWent(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newLeases(c.now)
	enroll(l, "a", "b", "c")
	l.went(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	if got := ended(l); got != "" {
		t.Errorf("%s went too early", got)
	}
	if _, next := l.due(); !next.Equal(c.at.Add(time.Second)) {
		t.Errorf("looked at again at %s, want a second from now", next)
	}
	c.at = c.at.Add(time.Second)
	if got := ended(l); got != "a" {
		t.Errorf("%q went, want a", got)
	}
}

func TestAnAgentThatComesBackKeepsItsDataplane(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newLeases(c.now)
	enroll(l, "a", "b", "c")
	l.went(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	l.came(proxyKey("a"))
	l.went(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	if got := ended(l); got != "" {
		t.Errorf("%s went, though its agent was there meanwhile", got)
	}
}

func TestARestartBeginsLeasesAnew(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newLeases(c.now)
	l.registered(proxyKey("gone")) // as the store says at the start
	enroll(l, "a", "b")
	c.at = c.at.Add(leaseTime - time.Second)
	if got := ended(l); got != "" {
		t.Errorf("%s went too early after a restart", got)
	}
	c.at = c.at.Add(time.Second)
	if got := ended(l); got != "gone" {
		t.Errorf("%q went, want gone", got)
	}
}

func TestNoLeaseEndsWhileMostProxiesAreMissing(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newLeases(c.now)
	for i := range 10 {
		enroll(l, fmt.Sprint(i))
	}
	for i := range 6 {
		l.went(proxyKey(fmt.Sprint(i)))
	}
	c.at = c.at.Add(leaseTime)
	if got := ended(l); got != "" {
		t.Errorf("%s went, though six of ten proxies are missing at once", got)
	}
	l.came(proxyKey("5"))
	if got := ended(l); got != "0 1 2 3 4" {
		t.Errorf("%q went, want the five that are missing", got)
	}
}

func TestADataplaneOfTheAPIHasNoLease(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newLeases(c.now)
	enroll(l, "a", "b")
	l.came(proxyKey("written"))
	l.went(proxyKey("written"))
	c.at = c.at.Add(2 * leaseTime)
	if got := ended(l); got != "" {
		t.Errorf("%s went, though nobody registered it", got)
	}
}
