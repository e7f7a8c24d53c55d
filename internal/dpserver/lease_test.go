package dpserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/state"
)

// fakeClock is a time that the test moves.
type fakeClock struct{ at time.Time }

func (c *fakeClock) now() time.Time { return c.at }

func proxyKey(name string) state.ProxyKey {
	return state.ProxyKey{Mesh: "default", Name: name}
}

// registerAndConnect registers proxies and connects their agents.
func registerAndConnect(l *leases, names ...string) {
	for _, name := range names {
		l.registered(proxyKey(name), registration{})
		l.agentConnected(proxyKey(name))
	}
}

// fakeInstances are the instances that share the store.
type fakeInstances struct {
	leads bool
	gone  int
}

func (o *fakeInstances) Leads() bool                 { return o.leads }
func (o *fakeInstances) Departures() int             { return o.gone }
func (o *fakeInstances) NextChange() <-chan struct{} { return nil }

func newLeasesAlone(c *fakeClock) *leases { return newLeases(c.now, &fakeInstances{leads: true}) }

// endedLeases returns the proxies whose lease ends, while the given ones are connected to another instance.
func endedLeases(l *leases, connectedOther ...string) string {
	l.restart()
	over, _ := l.dueLeases()
	keys, _ := l.endingLeases(over,
		func(key state.ProxyKey) bool { return slices.Contains(connectedOther, key.Name) },
		func(key state.ProxyKey) bool { return strings.HasPrefix(key.Name, "rejected") })
	var names []string
	for _, key := range keys {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestALeaseEndsFiveMinutesAfterItsAgentWent(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	registerAndConnect(l, "a", "b", "c")
	l.agentDisconnected(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went too early", got)
	}
	if _, next := l.dueLeases(); !next.Equal(c.at.Add(time.Second)) {
		t.Errorf("looked at again at %s, want a second from now", next)
	}
	c.at = c.at.Add(time.Second)
	if got := endedLeases(l); got != "a" {
		t.Errorf("%q went, want a", got)
	}
}

func TestAnAgentThatComesBackKeepsItsDataplane(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	registerAndConnect(l, "a", "b", "c")
	l.agentDisconnected(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	l.agentConnected(proxyKey("a"))
	l.agentDisconnected(proxyKey("a"))
	c.at = c.at.Add(leaseTime - time.Second)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went, though its agent was there meanwhile", got)
	}
}

func TestARestartBeginsLeasesAnew(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	l.registered(proxyKey("gone"), registration{}) // observed at the start
	registerAndConnect(l, "a", "b")
	c.at = c.at.Add(leaseTime - time.Second)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went too early after a restart", got)
	}
	c.at = c.at.Add(time.Second)
	if got := endedLeases(l); got != "gone" {
		t.Errorf("%q went, want gone", got)
	}
}

func TestNoLeaseEndsWhileMostProxiesAreMissing(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	for i := range 10 {
		registerAndConnect(l, fmt.Sprint(i))
	}
	for i := range 6 {
		l.agentDisconnected(proxyKey(fmt.Sprint(i)))
	}
	c.at = c.at.Add(leaseTime)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went, though six of ten proxies are missing at once", got)
	}
	l.agentConnected(proxyKey("5"))
	if got := endedLeases(l); got != "0 1 2 3 4" {
		t.Errorf("%q went, want the five that are missing", got)
	}
}

func TestADataplaneOfTheAPIHasNoLease(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	registerAndConnect(l, "a", "b")
	l.agentConnected(proxyKey("written"))
	l.agentDisconnected(proxyKey("written"))
	c.at = c.at.Add(2 * leaseTime)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went, though it was not registered", got)
	}
}

func TestAProxyAtAnotherInstanceKeepsItsDataplane(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	o := &fakeInstances{}
	l := newLeases(c.now, o)
	registerAndConnect(l, "moved", "left", "stays")
	l.registered(proxyKey("never here"), registration{})
	l.agentDisconnected(proxyKey("moved"))
	l.agentDisconnected(proxyKey("left"))
	c.at = c.at.Add(leaseTime)
	if got := endedLeases(l, "moved"); got != "left" {
		t.Errorf("%q went, want the one that is nowhere", got)
	}
	if got := endedLeases(l); got != "left" {
		t.Errorf("%q went, though the other instance has moved", got)
	}
}

func TestALeaderBeginsLeasesAnewWhenAnotherInstanceGoes(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	o := &fakeInstances{}
	l := newLeases(c.now, o)
	registerAndConnect(l, "here", "here too")
	l.registered(proxyKey("a"), registration{})
	l.registered(proxyKey("b"), registration{})
	o.leads = true
	endedLeases(l)
	c.at = c.at.Add(leaseTime)
	if got := endedLeases(l, "a", "b"); got != "" {
		t.Errorf("%q went, though they are at another instance", got)
	}
	o.gone = 1
	endedLeases(l)
	c.at = c.at.Add(leaseTime - time.Second)
	if got := endedLeases(l, "a"); got != "" {
		t.Errorf("%q went too early after its instance did", got)
	}
	c.at = c.at.Add(time.Second)
	if got := endedLeases(l, "a"); got != "b" {
		t.Errorf("%q went, want the one that did not come back", got)
	}
}

// TestALeaseOfAProxyThatIsNotAdmitted: it does not end, and keeps no other lease from ending.
func TestALeaseOfAProxyThatIsNotAdmitted(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	registerAndConnect(l, "a", "b", "rejected-1", "rejected-2", "rejected-3")
	for _, name := range []string{"rejected-1", "rejected-2", "rejected-3"} {
		l.agentDisconnected(proxyKey(name))
	}
	c.at = c.at.Add(leaseTime)
	if got := endedLeases(l); got != "" {
		t.Errorf("%s went, and is only not admitted", got)
	}
	l.agentDisconnected(proxyKey("a"))
	c.at = c.at.Add(leaseTime)
	if got := endedLeases(l); got != "a" {
		t.Errorf("%q went, want a: those that are not admitted are not missing", got)
	}
	l.removed(proxyKey("a"))
	admitted := func(state.ProxyKey) bool { return false }
	c.at = c.at.Add(leaseTime)
	over, _ := l.dueLeases()
	if got := l.renewNotAdmitted(over, admitted); len(over) != 3 || len(got) != 0 {
		t.Errorf("of %v, just admitted, %v went", over, got)
	}
	c.at = c.at.Add(leaseTime)
	over, _ = l.dueLeases()
	if got := l.renewNotAdmitted(over, admitted); len(got) != 3 {
		t.Errorf("%v went, want all three, which did not come back", got)
	}
}

// TestLeasesWithoutAnAgentEndThoughTheyAreMost: a flood of registrations must not keep its own Dataplanes by being most
// of the missing proxies.
func TestLeasesWithoutAnAgentEndThoughTheyAreMost(t *testing.T) {
	c := &fakeClock{time.Unix(1000, 0)}
	l := newLeasesAlone(c)
	registerAndConnect(l, "a", "b", "c")
	for i := range 10 {
		l.registered(proxyKey(fmt.Sprint("flood-", i)), registration{token: "stolen", silent: true})
	}
	if n, known := l.registrationsOf("stolen", proxyKey("flood-0")); n.silent != 10 || n.all != 10 || !known {
		t.Errorf("the token has registered %+v, want ten without an agent", n)
	}
	l.agentDisconnected(proxyKey("a"))
	c.at = c.at.Add(leaseTime)
	if got := strings.Fields(endedLeases(l)); len(got) != 11 {
		t.Errorf("%q went, want the ten without an agent, and a", got)
	}
	for _, name := range []string{"b", "c"} {
		l.agentDisconnected(proxyKey(name))
	}
	c.at = c.at.Add(leaseTime)
	if got := strings.Fields(endedLeases(l)); len(got) != 10 || slices.Contains(got, "b") {
		t.Errorf("%q went, want the ten without an agent alone: all others are missing at once", got)
	}
	for i := range 10 {
		l.removed(proxyKey(fmt.Sprint("flood-", i)))
	}
	if n, _ := l.registrationsOf("stolen", proxyKey("flood-0")); n != (registrations{}) {
		t.Errorf("the token has registered %+v, want none", n)
	}
}

func TestAnAgentWithASessionIsNotSilent(t *testing.T) {
	l := newLeasesAlone(&fakeClock{time.Unix(1000, 0)})
	l.registered(proxyKey("web"), registration{token: "t", silent: true})
	l.agentConnected(proxyKey("web"))
	l.agentDisconnected(proxyKey("web"))
	l.registered(proxyKey("web"), registration{token: "t", silent: true}) // the row is older than its session
	if n, _ := l.registrationsOf("t", proxyKey("web")); n != (registrations{all: 1}) {
		t.Errorf("the token has %+v, want one proxy, with an agent", n)
	}
}
