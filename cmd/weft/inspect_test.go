package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/dpserver"
	"weft/internal/rest"
	"weft/kind"
)

// TestOverviewOfAConnectedProxy: a proxy that is connected to the replica that responds is not offline, also before its
// insight is stored.
func TestOverviewOfAConnectedProxy(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *kind.Time { return &kind.Time{Time: now.Add(-d)} }
	inbound := kind.Networking{Inbound: []kind.Inbound{{Port: 80}}}
	for _, c := range []struct {
		what    string
		insight kind.DataplaneInsight
		sync    dpserver.Live
		want    string
		copy    bool
	}{
		{"never connected", kind.DataplaneInsight{}, dpserver.Live{}, "offline -", false},
		{"connected, not stored yet", kind.DataplaneInsight{ReadyListeners: []string{"10.0.0.1:80"}},
			dpserver.Live{Connected: true, ConnectedSince: ago(time.Second)}, "online 1s ago", false},
		{"connected, not stored yet, without a listener", kind.DataplaneInsight{},
			dpserver.Live{Connected: true, ConnectedSince: ago(time.Second)}, "not serving 1s ago", false},
		{"connected to another replica", kind.DataplaneInsight{ReadyListeners: []string{"10.0.0.1:80"},
			Subscriptions: []kind.Subscription{{ConnectTime: *ago(time.Minute)}}}, dpserver.Live{},
			"online 1m ago", false},
		{"connected again", kind.DataplaneInsight{ReadyListeners: []string{"10.0.0.1:80"},
			Subscriptions: []kind.Subscription{{ConnectTime: *ago(time.Hour), DisconnectTime: ago(time.Minute)}}},
			dpserver.Live{Connected: true, ConnectedSince: ago(time.Second)}, "online 1s ago", false},
		{"a copy on global, which has no listeners", kind.DataplaneInsight{},
			dpserver.Live{Connected: true, ConnectedSince: ago(time.Second)}, "online 1s ago", true},
	} {
		o := rest.Overview{Dataplane: &kind.Dataplane{Networking: inbound}, DataplaneInsight: &c.insight}
		o.Name, o.Labels = "web", map[string]string{kind.DisplayName: "web"}
		if c.copy {
			o.Name = "web-dbba5f7edc15bcb7"
		}
		row := overviewRow(&o, c.sync, now)
		if got := fmt.Sprint(row[1], " ", row[3]); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestFilesAreNamedByAFlag: a command that reads files says how to name them.
func TestFilesAreNamedByAFlag(t *testing.T) {
	for args, want := range map[string]string{
		"apply web.yaml":                    "weft apply -f web.yaml",
		"migrate export.yaml":               "weft migrate -f export.yaml",
		"delete web.yaml":                   "weft delete -f web.yaml",
		"diff web.yaml":                     "weft diff -f web.yaml",
		"install control-plane values.yaml": "weft install control-plane -f values.yaml",
		"generate dataplane-token dp.yaml":  "weft generate dataplane-token -f dp.yaml",
	} {
		command := newRootCommand()
		command.SetArgs(strings.Fields(args))
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("weft %s: %v, want %q", args, err, want)
		}
	}
}
