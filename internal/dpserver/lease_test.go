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

func proxyKey(name string) graph.ProxyKey {
	return graph.ProxyKey{Mesh: "default", Name: name}
}

// enroll registers proxies and lets their agents come.
func enroll(l *leases, names ...string) {
	for _, name := range names {
		l.registered(proxyKey(name), registration{})
		l.came(proxyKey(name))
	}
}

// others stands for the instances that share the store.
type others struct {
	leads bool
	gone  int
}

func (o *others) Leads() bool              { return o.leads }
func (o *others) Gone() int                { return o.gone }
func (o *others) Changed() <-chan struct{} { return nil }

func newAlone(c *clock) *leases { return newLeases(c.now, &others{leads: true}) }

// ended names those whose lease ends, where the given ones are at another instance.
func ended(l *leases, elsewhere ...string) string {
	l.look()
	over, _ := l.due()
	keys, _ := l.ending(over,
		func(key graph.ProxyKey) bool { return slices.Contains(elsewhere, key.Name) },
		func(key graph.ProxyKey) bool { return strings.HasPrefix(key.Name, "refused") })
	var names []string
	for _, key := range keys {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestALeaseEndsFiveMinutesAfterItsAgentWent(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newAlone(c)
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
	l := newAlone(c)
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
	l := newAlone(c)
	l.registered(proxyKey("gone"), registration{}) // as the store says at the start
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
	l := newAlone(c)
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
	l := newAlone(c)
	enroll(l, "a", "b")
	l.came(proxyKey("written"))
	l.went(proxyKey("written"))
	c.at = c.at.Add(2 * leaseTime)
	if got := ended(l); got != "" {
		t.Errorf("%s went, though nobody registered it", got)
	}
}

func TestAProxyAtAnotherInstanceKeepsItsDataplane(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	o := &others{}
	l := newLeases(c.now, o)
	enroll(l, "moved", "left", "stays")
	l.registered(proxyKey("never here"), registration{})
	l.went(proxyKey("moved"))
	l.went(proxyKey("left"))
	c.at = c.at.Add(leaseTime)
	if got := ended(l, "moved"); got != "left" {
		t.Errorf("%q went, want the one that is nowhere", got)
	}
	if got := ended(l); got != "left" {
		t.Errorf("%q went, though the other instance has moved", got)
	}
}

func TestALeaderBeginsLeasesAnewWhenAnotherInstanceGoes(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	o := &others{}
	l := newLeases(c.now, o)
	enroll(l, "here", "here too")
	l.registered(proxyKey("a"), registration{})
	l.registered(proxyKey("b"), registration{})
	o.leads = true
	ended(l)
	c.at = c.at.Add(leaseTime)
	if got := ended(l, "a", "b"); got != "" {
		t.Errorf("%q went, though they are at another instance", got)
	}
	o.gone = 1
	ended(l)
	c.at = c.at.Add(leaseTime - time.Second)
	if got := ended(l, "a"); got != "" {
		t.Errorf("%q went too early after its instance did", got)
	}
	c.at = c.at.Add(time.Second)
	if got := ended(l, "a"); got != "b" {
		t.Errorf("%q went, want the one that did not come back", got)
	}
}

// TestALeaseOfWhomTheMeshDoesNotAdmit: it does not end, and keeps no other from ending.
func TestALeaseOfWhomTheMeshDoesNotAdmit(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newAlone(c)
	enroll(l, "a", "b", "refused-1", "refused-2", "refused-3")
	for _, name := range []string{"refused-1", "refused-2", "refused-3"} {
		l.went(proxyKey(name))
	}
	c.at = c.at.Add(leaseTime)
	if got := ended(l); got != "" {
		t.Errorf("%s went, and is only not admitted", got)
	}
	l.went(proxyKey("a"))
	c.at = c.at.Add(leaseTime)
	if got := ended(l); got != "a" {
		t.Errorf("%q went, want a: those that are not admitted are not missing", got)
	}
	l.removed(proxyKey("a"))
	admitted := func(graph.ProxyKey) bool { return false }
	c.at = c.at.Add(leaseTime)
	over, _ := l.due()
	if got := l.spare(over, admitted); len(over) != 3 || len(got) != 0 {
		t.Errorf("of %v, just admitted, %v went", over, got)
	}
	c.at = c.at.Add(leaseTime)
	over, _ = l.due()
	if got := l.spare(over, admitted); len(got) != 3 {
		t.Errorf("%v went, want all three, which did not come back", got)
	}
}

// A flood of registrations must not keep its own Dataplanes by being most of the proxies that are missing.
func TestWhatNeverHadAnAgentGoesThoughItIsMostOfTheMesh(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	l := newAlone(c)
	enroll(l, "a", "b", "c")
	for i := range 10 {
		l.registered(proxyKey(fmt.Sprint("flood-", i)), registration{token: "stolen", silent: true})
	}
	if n, known := l.of("stolen", proxyKey("flood-0")); n.silent != 10 || n.all != 10 || !known {
		t.Errorf("the token has registered %+v, want ten without an agent", n)
	}
	l.went(proxyKey("a"))
	c.at = c.at.Add(leaseTime)
	if got := strings.Fields(ended(l)); len(got) != 11 {
		t.Errorf("%q went, want the ten without an agent, and a", got)
	}
	for _, name := range []string{"b", "c"} {
		l.went(proxyKey(name))
	}
	c.at = c.at.Add(leaseTime)
	if got := strings.Fields(ended(l)); len(got) != 10 || slices.Contains(got, "b") {
		t.Errorf("%q went, want the ten without an agent alone: all others are missing at once", got)
	}
	for i := range 10 {
		l.removed(proxyKey(fmt.Sprint("flood-", i)))
	}
	if n, _ := l.of("stolen", proxyKey("flood-0")); n != (registrations{}) {
		t.Errorf("the token has registered %+v, want none", n)
	}
}

func TestAnAgentThatOpensASessionIsCountedAsOne(t *testing.T) {
	l := newAlone(&clock{time.Unix(1000, 0)})
	l.registered(proxyKey("web"), registration{token: "t", silent: true})
	l.came(proxyKey("web"))
	l.went(proxyKey("web"))
	l.registered(proxyKey("web"), registration{token: "t", silent: true}) // the row is older than its session
	if n, _ := l.of("t", proxyKey("web")); n != (registrations{all: 1}) {
		t.Errorf("the token has %+v, want one proxy, with an agent", n)
	}
}
