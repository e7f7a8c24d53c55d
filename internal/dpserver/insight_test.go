package dpserver

import (
	"fmt"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
)

func TestSubscriptionsAreTheLastTenAndOneIsOpen(t *testing.T) {
	var i kind.DataplaneInsight
	at := time.Unix(1000, 0)
	for n := range 12 {
		connected(fmt.Sprint(n), "cp", kind.VersionOfEnvoy("1.40.0"), at.Add(time.Duration(n)*time.Minute))(&i)
	}
	if n := len(i.Subscriptions); n != 10 {
		t.Fatalf("%d subscriptions are kept, want 10", n)
	}
	for n, s := range i.Subscriptions {
		if open := s.DisconnectTime == nil; open != (n == 9) {
			t.Errorf("subscription %s: open is %v; only the last one of a proxy can be", s.ID, open)
		}
	}
	disconnected("11", at.Add(time.Hour))(&i)
	if d := i.Subscriptions[9].DisconnectTime; d == nil || !d.Equal(at.Add(time.Hour)) {
		t.Errorf("the last subscription ended at %v, want an hour after the start", d)
	}
	disconnected("11", at.Add(2*time.Hour))(&i)
	if d := i.Subscriptions[9].DisconnectTime; !d.Equal(at.Add(time.Hour)) {
		t.Errorf("an end that was stored was moved to %v", d)
	}
}

func TestANewConnectionHasNoNACKs(t *testing.T) {
	i := kind.DataplaneInsight{NACKs: []kind.NACK{{Name: "a"}}}
	connected("1", "cp", nil, time.Unix(1000, 0))(&i)
	if len(i.NACKs) != 0 {
		t.Errorf("NACKs of the last connection are kept: %v", i.NACKs)
	}
}

func TestLostReplica(t *testing.T) {
	at := time.Unix(10_000, 0)
	tests := []struct {
		name string
		does []insightChange
		want bool
	}{
		{"never connected", nil, false},
		{"was there when it was killed", []insightChange{connected("1", "gone", nil, at)}, true},
		{"was there when it stopped", []insightChange{connected("1", "gone", nil, at), disconnected("1", at)}, true},
		{"left it long before", []insightChange{connected("1", "gone", nil, at.Add(-time.Hour)),
			disconnected("1", at.Add(-lostConnectionLife))}, false},
		{"is connected to another one", []insightChange{connected("1", "gone", nil, at), connected("2", "cp", nil, at)},
			false},
		{"was always connected to another one", []insightChange{connected("1", "cp", nil, at)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var i kind.DataplaneInsight
			for _, happened := range test.does {
				happened(&i)
			}
			if got := isLost(&i, func(instance string) bool { return instance == "gone" }, at); got != test.want {
				t.Errorf("strayed: %t, want %t", got, test.want)
			}
		})
	}
}

// TestLostReplicasAreOfThisZone: insights that zones send to global have the instances of those zones.
func TestLostReplicasAreOfThisZone(t *testing.T) {
	for zone, want := range map[string]bool{"east": true, "": false} {
		state := graph.NewState(zone)
		insight := kind.DataplaneInsights.Make("default", "web-1", kind.DataplaneInsight{})
		connected("1", "earlier", nil, time.Now())(&insight.Spec)
		state.Tables.DB.Commit(func(tx *table.Tx) { state.Tables.Put(tx, insight) })
		if got := LostReplicas(state, func(instance string) bool { return instance != "cp" }); got != want {
			t.Errorf("in the zone %q replicas are lost: %t, want %t", zone, got, want)
		}
	}
}
