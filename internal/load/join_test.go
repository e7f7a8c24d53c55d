package load

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"weft/internal/xds"
)

func TestAnAssignmentIsFullWithEachProxyOfItsService(t *testing.T) {
	run := &joinRun{world: &world{Options: Options{Proxies: 1000, Services: 300}}}
	for want, addresses := range map[bool][]string{
		true:  {address(299), address(599), address(899)}, // of 1,000 proxies 3 serve the last service
		false: {address(0), address(300), address(600)},   // and 4 the first one
	} {
		if got := run.full(addresses); got != want {
			t.Errorf("%v is full: %t, want %t", addresses, got, want)
		}
	}
	if run.full(nil) {
		t.Error("an empty assignment is full")
	}
	if got := indexOf(address(70_000)); got != 70_000 {
		t.Errorf("the address of proxy 70,000 is that of %d", got)
	}
}

func TestAProxyThatComesBackStatesWhatItHas(t *testing.T) {
	p := &proxy{node: "load.proxy-1", messages: 3}
	p.ask(xds.Endpoint, []string{"a", "b"})
	p.received = []*message{
		{typ: xds.Cluster, parts: []*part{{name: "a", version: "1"}, {name: "b", version: "1"}}},
		{typ: xds.Endpoint, parts: []*part{{name: "a", version: "1"}}},
		{typ: xds.Cluster, parts: []*part{{name: "a", version: "2"}}, removed: []string{"b"}},
	}
	requests := p.opening()
	if len(requests) != 3 || requests[0].Node == nil || requests[1].Node != nil {
		t.Fatalf("want clusters with the node, endpoints and listeners, got %v", requests)
	}
	if got := requests[0].InitialResourceVersions; !maps.Equal(got, map[string]string{"a": "2"}) {
		t.Errorf("the clusters that it has are %v", got)
	}
	names := slices.Sorted(slices.Values(requests[1].ResourceNamesSubscribe))
	if got := requests[1].InitialResourceVersions; !maps.Equal(got, map[string]string{"a": "1"}) || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("it subscribes to endpoints of %v and has %v", names, got)
	}
	if first := (&proxy{node: "load.proxy-2"}).opening(); len(first) != 1 || len(first[0].InitialResourceVersions) > 0 {
		t.Errorf("a new proxy begins with %v", first)
	}
}

func TestAJoinIsMeasuredAgainstItsBudgets(t *testing.T) {
	report := &JoinReport{
		Proxies: 1000, Services: 300, FullBytes: 500_000,
		Plane: JoinCost{Seconds: 3, CPUSeconds: 5, Bytes: 601_000, RSSBytes: 99_000},
		Floor: JoinCost{Seconds: 2, CPUSeconds: 2},
	}
	var table bytes.Buffer
	if err := report.Print(&table); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		want := strings.Contains(line, "join: CPU") || strings.Contains(line, "join: bytes")
		if over := strings.Contains(line, "OVER"); over != want {
			t.Errorf("over budget are the CPU and the bytes, and the table says: %s", line)
		}
	}
	report.BackResources = 1
	table.Reset()
	if err := report.Print(&table); err != nil || !strings.Contains(table.String(), "of 0  OVER") {
		t.Errorf("a resource that is sent after a restart is not over its budget: %v\n%s", err, &table)
	}
}

func TestAJoinSaysWhatItCannotMeasure(t *testing.T) {
	if _, err := RunJoin(t.Context(), JoinOptions{Proxies: 3, Services: 4}); err == nil || !strings.Contains(err.Error(), "got 3 and 4") {
		t.Errorf("more services than proxies: %v", err)
	}
}
