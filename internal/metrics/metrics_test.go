package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/internal/mirror"
	"weft/internal/proxy"
	"weft/internal/push"
	"weft/internal/service"
	"weft/internal/store"
	"weft/internal/table"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// busy returns the metrics of a control plane with one event of each type.
func busy() *Metrics {
	m := New("1.2.3", "east", "instance-1")
	m.Follow(Sources{
		Streams:  func() int { return 3 },
		Unacked:  func() int { return 1 },
		Sessions: func() int { return 2 },
		Traffic: func() []xds.Traffic {
			return []xds.Traffic{{Type: xds.Cluster, Responses: 5, Bytes: 700, Acked: 4, NACKed: 1}}
		},
		ProxyGroups: func() []push.GroupSize {
			near := service.AffinityOf(map[string]string{"node": "1"})
			return []push.GroupSize{{Group: proxy.Group{Mesh: "default", Reach: "*", Affinity: near}, Proxies: 3}}
		},
		Draining:    func() int { return 1 },
		Backlog:     func() int { return 7 },
		StoreOutage: func() int { return 0 },
	})
	m.FollowLinks(func() []Link {
		return []Link{{Zone: "east", Connected: true, Lag: 1500 * time.Millisecond, Rejected: 2}, {Zone: "west"}}
	})
	m.Frame("MeshService", true,
		&wire.Frame{Message: &wire.Frame_Batch{Batch: &wire.Batch{Items: [][]byte{{1, 2, 3}, {4}}}}})
	m.Frame("MeshService", false,
		&wire.Frame{Message: &wire.Frame_Ack{Ack: &wire.Ack{Rejected: []*wire.Rejection{{Reason: "no"}}}}})
	m.Frame("MeshService", true,
		&wire.Frame{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1}}})
	now := time.Now()
	fresh, old := kind.Meshes.Make("", "a", kind.Mesh{}), kind.Meshes.Make("", "b", kind.Mesh{})
	fresh.Modified, old.Modified = now.Add(-time.Millisecond), now.Add(-time.Hour)
	m.Commit(mirror.Batch{Put: []resource.Any{fresh, old}, Removed: make([]resource.Key, 2)}, now, 2*time.Millisecond)
	m.ObserveAck(5 * time.Millisecond)
	m.ObserveDrain(2, 40*time.Millisecond, true)
	m.ObserveDrain(1, 30*time.Second, false)
	m.Stage(table.Stage{Table: "endpoints", Recomputed: 5, Changed: 2, Took: time.Millisecond})
	m.Store("update", time.Millisecond, store.ErrStale)
	m.Store("update", time.Millisecond, store.ErrUnavailable)
	api := m.API(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, method := range []string{"GET", "MADE-UP"} {
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/", nil))
	}
	return m
}

func scrape(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestWhatHappensIsCounted(t *testing.T) {
	text := scrape(busy())
	for _, want := range []string{
		`weft_info{instance_id="instance-1",version="1.2.3",zone="east"} 1`,
		`weft_xds_streams 3`,
		`weft_agents 2`,
		`weft_xds_sent_bytes_total{type="cluster"} 700`,
		`weft_xds_nacks_total{type="cluster"} 1`,
		`weft_proxy_groups 1`,
		`weft_affinity_proxy_groups{mesh="default"} 1`,
		`weft_listeners_draining 1`,
		`weft_listener_drain_seconds_count{outcome="acked"} 2`,
		`weft_listener_drain_seconds_count{outcome="timeout"} 1`,
		`weft_zonesync_items_total{direction="sent",kind="MeshService"} 2`,
		`weft_zonesync_rejected_total{direction="received",kind="MeshService"} 1`,
		`weft_zonesync_resyncs_total{direction="sent",kind="MeshService"} 1`,
		`weft_zonesync_connected{zone="east"} 1`,
		`weft_zonesync_connected{zone="west"} 0`,
		`weft_zonesync_lag_seconds{zone="east"} 1.5`,
		`weft_zonesync_rejected_items{zone="east"} 2`,
		`weft_reconcile_backlog 7`,
		`weft_table_commit_rows_total 4`,
		`weft_table_commit_seconds_count 1`,
		`weft_config_push_delay_seconds_count 1`,
		`weft_xds_ack_latency_seconds_count 1`,
		`weft_xds_streams_unacked 1`,
		`weft_table_stage_values_total{result="changed",stage="endpoints"} 2`,
		`weft_table_stage_values_total{result="equal",stage="endpoints"} 3`,
		`weft_store_seconds_count{operation="update",outcome="rejected"} 1`,
		`weft_store_seconds_count{operation="update",outcome="failed"} 1`,
		`weft_api_request_seconds_count{method="GET",status="418"} 1`,
		`weft_api_request_seconds_count{method="other",status="418"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`(?m)^# TYPE (weft_\w+)`).FindAllStringSubmatch(scrape(busy()), -1)
	if len(told) == 0 {
		t.Fatal("no metric is exported")
	}
	names := map[string]bool{}
	for _, found := range told {
		names[found[1]] = true
		if !strings.Contains(string(page), "`"+found[1]+"`") {
			t.Errorf("%s has no line in docs/operations/metrics.md", found[1])
		}
	}
	for _, found := range regexp.MustCompile("\\| `(weft_\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !names[found[1]] {
			t.Errorf("docs/operations/metrics.md has %s, which does not exist", found[1])
		}
	}
}
