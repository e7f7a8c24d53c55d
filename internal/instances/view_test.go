package instances

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
)

var start = time.Unix(1000, 0)

func TestAnInstanceIsSilentAfterFifteenSecondsWithoutARenewal(t *testing.T) {
	v := newView("a", start)
	v.hear("b", "1", start)
	v.hear("c", "1", start)
	v.hear("b", "2", start.Add(5*time.Second))
	v.hear("c", "1", start.Add(5*time.Second)) // heard of again, and not renewed
	if dead, next := v.silent(start.Add(14 * time.Second)); len(dead) > 0 || !next.Equal(start.Add(silence)) {
		t.Errorf("%v are dead after 14 s, looked at again at %s", dead, next)
	}
	if dead, _ := v.silent(start.Add(15 * time.Second)); len(dead) != 1 || dead["c"] != "1" {
		t.Errorf("after 15 s %v are dead, want c at the version that stood", dead)
	}
}

func TestWhoCouldNotReachTheStoreHoldsNothingAgainstTheOthers(t *testing.T) {
	v := newView("a", start)
	v.hear("b", "1", start)
	v.renewed(start.Add(time.Minute), true)
	if dead, _ := v.silent(start.Add(time.Minute)); len(dead) > 0 {
		t.Errorf("%v are taken for dead by one that heard of nobody itself", dead)
	}
}

func TestALeaderStandsDownBeforeItsRowCouldBeDeleted(t *testing.T) {
	v := newView("a", start)
	v.renewed(start, false)
	v.lead(kind.Leadership{Holder: "a", Term: 1}, "1", true)
	if !v.leads(start.Add(assurance - 1)) {
		t.Error("does not lead though its row was renewed")
	}
	if v.leads(start.Add(assurance)) || assurance >= silence {
		t.Error("leads at a time when another one may take over")
	}
	v.renewed(start.Add(time.Minute), true)
	if !v.leads(start.Add(time.Minute)) {
		t.Error("nobody took the leadership, and it does not go on")
	}
}

func TestTheLeadershipIsTakenWhereItsHolderIsNotLive(t *testing.T) {
	other := kind.Leadership{Holder: "b", Term: 4}
	tests := []struct {
		name    string
		prepare func(*view)
		want    bool
	}{
		{"nobody ever led", func(*view) {}, true},
		{"another one leads", func(v *view) { v.hear("b", "1", start); v.lead(other, "9", false) }, false},
		{"the leader is gone", func(v *view) { v.hear("b", "1", start); v.lead(other, "9", false); v.miss("b", start) },
			true},
		{"this one leads", func(v *view) { v.lead(kind.Leadership{Holder: "a", Term: 5}, "9", true) }, false},
		{"this one was taken for dead", func(v *view) { v.lost() }, false},
		{"this one led and was taken for dead meanwhile", func(v *view) {
			v.lead(kind.Leadership{Holder: "a", Term: 5}, "9", true)
			v.lost()
			v.renewed(start, false)
		}, true},
		{"an earlier leader is heard of late", func(v *view) {
			v.hear("c", "1", start)
			v.lead(kind.Leadership{Holder: "c", Term: 5}, "10", false)
			v.lead(other, "9", false)
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newView("a", start)
			v.renewed(start, false)
			test.prepare(v)
			if got := v.mayLead(start); got != test.want {
				t.Errorf("may lead: %t, want %t", got, test.want)
			}
		})
	}
}

func TestAnAnswerIsMissingOfWhoLivesAndOfWhoWentLately(t *testing.T) {
	v := newView("a", start)
	for _, id := range []string{"answered", "lives", "went", "left"} {
		v.hear(id, "1", start)
	}
	v.miss("left", start)
	v.miss("went", start.Add(20*time.Second))
	at := start.Add(30 * time.Second)
	ids, next := v.missing([]string{"answered"}, at, 30*time.Second)
	if got := strings.Join(ids, " "); got != "lives went" || !next.Equal(start.Add(50*time.Second)) {
		t.Errorf("waits for %q and looks again at %s", got, next)
	}
}

func TestWhenAnInstanceEnded(t *testing.T) {
	v := newView("a", start)
	v.hear("lives", "1", start)
	v.hear("died", "1", start)
	v.hear("died", "2", start.Add(5*time.Second))
	v.miss("died", start.Add(20*time.Second))
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

func TestInquiriesOfTheDeadAreOrphans(t *testing.T) {
	v := newView("a", start)
	v.hear("b", "1", start)
	v.ackRequests = map[string]kind.AckRequest{"mine": {Requester: "a"}, "b's": {Requester: "b"},
		"answered": {Requester: "b", AckedBy: []string{"a"}}, "c's": {Requester: "c"}}
	if got := v.orphaned(); !slices.Equal(got, []string{"c's"}) {
		t.Errorf("orphans %v", got)
	}
	got := v.unanswered()
	slices.Sort(got)
	if !slices.Equal(got, []string{"b's", "c's"}) {
		t.Errorf("to be answered: %v", got)
	}
}
