package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
)

var start = time.Unix(1000, 0)

func TestALeaseExpiresFifteenSecondsAfterARenewal(t *testing.T) {
	v := newView("a", start, Timing{})
	v.observe("b", "1", start)
	v.observe("c", "1", start)
	v.observe("b", "2", start.Add(5*time.Second))
	v.observe("c", "1", start.Add(5*time.Second)) // read again, without a renewal
	dead, next := v.expired(start.Add(14 * time.Second))
	if len(dead) > 0 || !next.Equal(start.Add(v.timing.LeaseDuration)) {
		t.Errorf("%v are dead after 14 s, looked at again at %s", dead, next)
	}
	if dead, _ := v.expired(start.Add(15 * time.Second)); len(dead) != 1 || dead["c"] != "1" {
		t.Errorf("after 15 s %v are dead, want c at the version that stood", dead)
	}
}

func TestAReplicaThatCouldNotReachTheStoreExpiresNoLease(t *testing.T) {
	v := newView("a", start, Timing{})
	v.observe("b", "1", start)
	v.renewed(start.Add(time.Minute), true)
	if dead, _ := v.expired(start.Add(time.Minute)); len(dead) > 0 {
		t.Errorf("%v are expired for a replica that read no row itself", dead)
	}
}

func TestALeaderStepsDownBeforeItsLeaseExpires(t *testing.T) {
	v := newView("a", start, Timing{})
	v.renewed(start, false)
	v.lead(kind.Leadership{Holder: "a", Term: 1}, "1", true)
	if !v.leads(start.Add(v.timing.RenewDeadline - 1)) {
		t.Error("does not lead though its row was renewed")
	}
	if v.leads(start.Add(v.timing.RenewDeadline)) || v.timing.RenewDeadline >= v.timing.LeaseDuration {
		t.Error("leads at a time when another one may take over")
	}
	v.renewed(start.Add(time.Minute), true)
	if !v.leads(start.Add(time.Minute)) {
		t.Error("the leadership is free, and it does not continue")
	}
}

func TestLeaderlessReplicas(t *testing.T) {
	lease := newView("a", start, Timing{}).timing.LeaseDuration
	deadline := newView("a", start, Timing{}).timing.RenewDeadline
	led := func(holder string) func(*view) {
		return func(v *view) {
			v.renewed(start, false)
			v.observe("b", "1", start)
			v.lead(kind.Leadership{Holder: holder, Term: 1}, "1", holder == "a")
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(*view)
		since   time.Duration
	}{
		{"no leadership", func(*view) {}, 0},
		{"an own lease that ends", led("a"), deadline},
		{"a peer's lease that ends", led("b"), lease},
		{"a peer that is gone", func(v *view) {
			led("b")(v)
			v.observeDeletion("b", start.Add(time.Second))
		}, time.Second},
	} {
		v := newView("a", start, Timing{})
		test.prepare(v)
		began := start.Add(test.since)
		if test.since > 0 {
			if at, ok := v.leaderless(began.Add(-1)); ok && !at.Equal(began) {
				t.Errorf("%s: no leader since %s, before that", test.name, at)
			}
		}
		if at, ok := v.leaderless(start.Add(time.Minute)); !ok || !at.Equal(began) {
			t.Errorf("%s: no leader since %s (%t), want %s", test.name, at, ok, began)
		}
	}
	v := newView("a", start, Timing{})
	led("a")(v)
	if _, ok := v.leaderless(start); ok {
		t.Error("this replica leads")
	}
	led("b")(v)
	if _, ok := v.leaderless(start); ok {
		t.Error("the peer leads")
	}
}

func TestTheLeadershipIsTakenWhereItsHolderIsNotLive(t *testing.T) {
	other := kind.Leadership{Holder: "b", Term: 4}
	tests := []struct {
		name    string
		prepare func(*view)
		want    bool
	}{
		{"no replica ever led", func(*view) {}, true},
		{"another one leads", func(v *view) { v.observe("b", "1", start); v.lead(other, "9", false) }, false},
		{"the leader is gone", func(v *view) {
			v.observe("b", "1", start)
			v.lead(other, "9", false)
			v.observeDeletion("b", start)
		},
			true},
		{"this one leads", func(v *view) { v.lead(kind.Leadership{Holder: "a", Term: 5}, "9", true) }, false},
		{"its own lease expired", func(v *view) { v.leaseExpired() }, false},
		{"this one led, and its lease expired meanwhile", func(v *view) {
			v.lead(kind.Leadership{Holder: "a", Term: 5}, "9", true)
			v.leaseExpired()
			v.renewed(start, false)
		}, true},
		{"an earlier leader is heard of late", func(v *view) {
			v.observe("c", "1", start)
			v.lead(kind.Leadership{Holder: "c", Term: 5}, "10", false)
			v.lead(other, "9", false)
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newView("a", start, Timing{})
			v.renewed(start, false)
			test.prepare(v)
			if got := v.mayLead(start); got != test.want {
				t.Errorf("may lead: %t, want %t", got, test.want)
			}
		})
	}
}

func TestPendingResponsesAreOfLiveAndRecentlyDepartedReplicas(t *testing.T) {
	v := newView("a", start, Timing{})
	for _, id := range []string{"answered", "lives", "went", "left"} {
		v.observe(id, "1", start)
	}
	v.observeDeletion("left", start)
	v.observeDeletion("went", start.Add(20*time.Second))
	at := start.Add(30 * time.Second)
	ids, next := v.missing([]string{"answered"}, at, 30*time.Second)
	if got := strings.Join(ids, " "); got != "lives went" || !next.Equal(start.Add(50*time.Second)) {
		t.Errorf("waits for %q and looks again at %s", got, next)
	}
}

func TestWhenAnInstanceEnded(t *testing.T) {
	v := newView("a", start, Timing{})
	v.observe("lives", "1", start)
	v.observe("died", "1", start)
	v.observe("died", "2", start.Add(5*time.Second))
	v.observeDeletion("died", start.Add(20*time.Second))
	tests := []struct {
		id    string
		ended bool
		last  time.Time
	}{
		{"a", false, time.Time{}},
		{"lives", false, time.Time{}},
		{"died", true, start.Add(5 * time.Second)},
		{"before my time", true, start},
	}
	for _, test := range tests {
		if last, ended := v.ended(test.id); ended != test.ended || !last.Equal(test.last) {
			t.Errorf("%s: ended %t at %s, want %t at %s", test.id, ended, last, test.ended, test.last)
		}
	}
}

func TestAckRequestsOfDepartedReplicasAreUnowned(t *testing.T) {
	v := newView("a", start, Timing{})
	v.observe("b", "1", start)
	v.ackRequests = map[string]kind.AckRequest{"mine": {Requester: "a"}, "b's": {Requester: "b"},
		"answered": {Requester: "b", AckedBy: []string{"a"}}, "c's": {Requester: "c"}}
	if got := v.unowned(); !slices.Equal(got, []string{"c's"}) {
		t.Errorf("unowned %v", got)
	}
	got := v.pendingRequests()
	slices.Sort(got)
	if !slices.Equal(got, []string{"b's", "c's"}) {
		t.Errorf("to be answered: %v", got)
	}
}
