package check_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"weft/internal/bubble"
	"weft/internal/check"
	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// tracked is a scene whose table a tracker follows.
type tracked struct {
	*scene
	*check.Tracker
	passed time.Duration // since now
}

// track returns a tracker of a scene whose table has no rows yet.
func track(s *scene) *tracked {
	w := &tracked{scene: s}
	db := s.stage.Tables.DB
	db.Clock = func() time.Time { return now.Add(w.passed) }
	w.Tracker = check.NewTracker(check.Config{
		Stage: s.stage,
		World: func() check.World { s.Now = now.Add(w.passed); return s.World },
		Commit: func(change func(*table.Tx)) {
			w.Tracker.Follow(nil, nil, []*table.Changes{db.Commit(change)}, db.Snapshot().Time)
		},
		Write: func(f func()) { f() },
	})
	return w
}

// put commits rows.
func (w *tracked) put(rows ...resource.Any) {
	changes := w.stage.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range rows {
			w.stage.Tables.Put(tx, o)
		}
	})
	w.Follow(rows, nil, []*table.Changes{changes}, w.Now)
}

// remove commits the removal of rows.
func (w *tracked) remove(keys ...resource.Key) {
	changes := w.stage.Tables.DB.Commit(func(tx *table.Tx) {
		for _, key := range keys {
			w.stage.Tables.Remove(tx, key)
		}
	})
	w.Follow(nil, keys, []*table.Changes{changes}, w.Now)
}

// compare fails where the tracker has other findings than an evaluation from nothing.
func (w *tracked) compare(t *testing.T, when string) {
	t.Helper()
	got, err := w.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := check.Run(w.stage, w.stage.Tables.DB.Snapshot(), w.World)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(check.Finding{}, "Since", "AtLeast"),
		cmpopts.IgnoreUnexported(check.Report{}), cmpopts.SortSlices(func(a, b check.Finding) bool {
			return strings.Compare(a.Detail, b.Detail) < 0
		})); diff != "" || got.PoliciesAt != nil {
		t.Fatalf("%s, the tracker differs from an evaluation from nothing (-want +got):\n%s", when, diff)
	}
}

// TestTrackedFindings: after any change, and at any time, the tracked findings are those of an evaluation from nothing.
func TestTrackedFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			scene, rows := world(t, archive)
			w := track(scene)
			w.compare(t, "without rows")
			random := rand.New(rand.NewPCG(uint64(i), 1))
			random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			steps := []time.Duration{time.Second, 3 * time.Minute, 40 * 24 * time.Hour}
			for _, o := range rows {
				w.put(o)
				w.passed += time.Second
				w.compare(t, "with "+o.Key().String())
			}
			for range 5 {
				w.passed += steps[random.IntN(len(steps))]
				w.put()
				w.compare(t, "after "+w.passed.String())
			}
			for _, o := range rows {
				w.remove(o.Key())
				w.passed += 10 * time.Second
				w.compare(t, "without "+o.Key().String())
			}
		})
	}
}

// dataplane returns a Dataplane that is written now and has never connected.
func (w *tracked) dataplane(name string) resource.Any {
	o := kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}})
	o.Created, o.Modified = now.Add(w.passed), now.Add(w.passed)
	kind.VouchOperator(nil, o)
	return o
}

// connection returns the insight of a Dataplane whose proxy is connected to a replica.
func connection(name, replica string) resource.Any {
	return kind.DataplaneInsights.Make("default", name, kind.DataplaneInsight{Subscriptions: []kind.Subscription{
		{ID: "1", ControlPlaneInstanceID: replica, ConnectTime: kind.Time{Time: now},
			Version: kind.VersionOfEnvoy("1.40.0")}}})
}

// report returns the findings of a problem, each as its object with the seconds since now, and "+" where it may be
// older.
func (w *tracked) report(t *testing.T, problem string) string {
	t.Helper()
	report, err := w.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range report.Findings {
		if f.Problem == problem {
			text := fmt.Sprintf("%s %d", f.Object.Name, int(f.Since.Sub(now).Seconds()))
			if f.AtLeast {
				text += "+"
			}
			found = append(found, text)
		}
	}
	return strings.Join(found, ", ")
}

// TestSinceOfAFinding: a finding has the time of the commit with which the replica had it first, while it is about the
// same problem of the same object. One that the replica has when it begins may be older.
func TestSinceOfAFinding(t *testing.T) {
	w := track(newScene("east"))
	w.put(kind.Meshes.Make("", "default", kind.Mesh{}), w.dataplane("a"))
	w.passed = 5 * time.Minute
	w.put(w.dataplane("b"))
	expect := func(want string) {
		t.Helper()
		if got := w.report(t, "proxy-never-connected"); got != want {
			t.Errorf("after %s the findings are since %q, want %q", w.passed, got, want)
		}
	}
	w.passed += time.Second
	expect("a 300+")
	w.passed += time.Minute
	w.put() // at the deadline
	w.passed += time.Minute
	expect("a 300+, b 361")
	w.put(w.dataplane("c"), connection("a", "r1"))
	w.passed += 2 * time.Minute
	w.put()
	expect("b 361, c 541")
	w.remove(kind.DataplaneInsights.Key("default", "a"))
	expect("a 541, b 361, c 541")
}

// TestLostReplicas: a proxy whose replica has ended without a word is offline, until the replica is live again.
func TestLostReplicas(t *testing.T) {
	w := track(newScene("east"))
	ended := map[string]bool{}
	w.Ended = func(replica string) (time.Time, bool) { return now.Add(time.Minute), ended[replica] }
	w.put(kind.Meshes.Make("", "default", kind.Mesh{}), w.dataplane("a"), w.dataplane("b"), connection("a", "r1"),
		connection("b", "r2"))
	for i, want := range []string{"", "a 2", "", "a 4, b 4"} {
		ended["r1"], ended["r2"] = i%2 == 1, i == 3
		w.passed += time.Second
		if got := w.report(t, "proxy-offline"); got != want {
			t.Errorf("in step %d offline are %q, want %q", i, got, want)
		}
		w.compare(t, "with replicas that end")
	}
}

// TestCostOfAChange: a change evaluates the findings of the rows that it is about, and the others are kept.
func TestCostOfAChange(t *testing.T) {
	w := track(newScene("east"))
	evaluated := 0
	w.stage.Tables.DB.Observe(func(s table.Stage) {
		if s.Table == "findings" {
			evaluated += s.Recomputed
		}
	})
	rows := []resource.Any{kind.Meshes.Make("", "default", kind.Mesh{})}
	for i := range 20 {
		service := fmt.Sprint("s-", i)
		rows = append(rows, kind.MeshServices.Make("default", service, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: service}},
			Ports:    []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}}}}))
		for j := range 10 {
			name := fmt.Sprint(service, "-", j)
			o := w.dataplane(name).(*resource.Object[kind.Dataplane])
			o.Spec.Networking.Inbound = []kind.Inbound{{Port: 8080, Tags: map[string]string{kind.ServiceTag: service}}}
			rows = append(rows, o, connection(name, "r1"))
		}
	}
	w.put(rows...)
	if w.report(t, ""); evaluated != 0 {
		t.Errorf("%d findings are evaluated again before a change", evaluated)
	}
	offline := connection("s-3-7", "r1")
	offline.(*resource.Object[kind.DataplaneInsight]).Spec.Subscriptions[0].DisconnectTime = &kind.Time{Time: now}
	for change, most := range map[resource.Any]int{
		offline:              1,
		w.dataplane("s-3-6"): 2, // and its service
		kind.MeshServices.Make("default", "other", kind.MeshService{}): 1,
		kind.MeshTimeouts.Make("default", "t", kind.MeshTimeout{}):     0,
	} {
		evaluated = 0
		if w.put(change); evaluated > most {
			t.Errorf("%s evaluates %d findings, want %d at most", change.Key(), evaluated, most)
		}
		w.passed += time.Second // the policies are evaluated again
		w.compare(t, "after "+change.Key().String())
	}
}

// TestIdleFindingsAreDropped: findings are kept for ten minutes after somebody asked, and as long as somebody
// subscribes.
func TestIdleFindingsAreDropped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := track(newScene("east"))
		evaluated := false
		w.stage.Tables.DB.Observe(func(s table.Stage) { evaluated = evaluated || s.Table == "findings" })
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); w.Run(ctx) }()
		defer func() { cancel(); <-ran }()
		w.put(kind.Meshes.Make("", "default", kind.Mesh{}), w.dataplane("a"))
		kept := func() bool {
			synctest.Wait()
			evaluated = false
			w.put(w.dataplane("a"))
			return evaluated
		}
		expect := func(when string, want bool) {
			t.Helper()
			if kept() != want {
				t.Errorf("%s the findings are kept: %t", when, !want)
			}
		}
		expect("before anybody asks", false)
		w.report(t, "")
		expect("after a report", true)
		time.Sleep(9 * time.Minute)
		w.report(t, "")
		time.Sleep(9 * time.Minute)
		expect("nine minutes after another report", true)
		time.Sleep(2 * time.Minute)
		expect("ten minutes after the last report", false)
		s, err := w.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		expect("during a subscription", true)
		s.Close()
		time.Sleep(11 * time.Minute)
		expect("after the subscription", false)
		w.compare(t, "after all")
	})
}

// TestDifferencesOfFindings: a subscriber is woken for what came and went, and not for an age. Changes that it has not
// read are one difference.
func TestDifferencesOfFindings(t *testing.T) {
	w := track(newScene("east"))
	w.put(kind.Meshes.Make("", "default", kind.Mesh{}), w.dataplane("a"), kind.Secrets.Make("default",
		pki.DataplaneRealm("default").SigningKey("1").Name, kind.Secret{}))
	s, err := w.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	expect := func(came, went string) {
		t.Helper()
		select {
		case <-s.Wakeups():
		default:
			if came+went != "" {
				t.Error("the subscriber is not woken")
			}
			return
		}
		names := func(findings []check.Finding) string {
			var all []string
			for _, f := range findings {
				all = append(all, f.Problem+" "+f.Object.Name)
			}
			return strings.Join(all, ", ")
		}
		d := s.Next()
		if names(d.Came) != came || names(d.Went) != went || d.Revision != w.stage.Tables.DB.Snapshot().Revision {
			t.Errorf("%q came and %q went at %d, want %q and %q", names(d.Came), names(d.Went), d.Revision, came, went)
		}
	}
	expect("", "")
	w.passed = 2 * time.Minute
	w.put()
	expect("proxy-never-connected a", "")
	w.passed = 3 * time.Minute
	w.put()
	expect("", "")
	w.put(w.dataplane("b"))
	w.remove(kind.Dataplanes.Key("default", "b"))
	w.put(connection("a", "r1"), w.dataplane("c"))
	w.passed = 5 * time.Minute
	w.put()
	expect("proxy-never-connected c", "proxy-never-connected a")
	expect("", "")
}
