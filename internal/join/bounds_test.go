package join

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weft/internal/zonesync"
	"weft/kind"
)

// TestTheBoundsAreDocumented: docs/operations/multizone.md has the numbers of the code.
func TestTheBoundsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/multizone.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), ",", "")
	for _, line := range []string{
		fmt.Sprintf("resources of one kind | %d %d MiB |", maxResources, maxResourceBytes>>20),
		fmt.Sprintf("MeshServices and their ports | %d and %d |", maxServices, maxPorts),
		fmt.Sprintf("of all kinds | %d at once then %d a second |", itemsAtOnce, itemsASecond),
		fmt.Sprintf("of all kinds | %d %d MiB;", maxKeptItems, maxKeptBytes>>20),
		fmt.Sprintf("%d at once and %d a second | ResourceExhausted", streamsAtOnce, streamsASecond),
	} {
		if !strings.Contains(page, line) {
			t.Errorf("docs/operations/multizone.md lacks %q", line)
		}
	}
}

// TestWithin: a zone may have a number of resources of a kind, a number of bytes of them, and of ports of its
// MeshServices. At a bound, and above one, its resources can still be changed and deleted, as long as they do not
// grow.
func TestWithin(t *testing.T) {
	east := kind.Owner{Zone: "east"}
	k := newLogs(kind.Owner{}, nil, nil).kinds[kind.MeshServices.Name]
	item := func(name string, bytes int) zonesync.Item {
		return zonesync.Item{Key: zonesync.Key{Owner: east, Mesh: "m", Name: name}, Body: make([]byte, bytes)}
	}
	ports := func(name string, ports int) zonesync.Item {
		with := item(name, 0)
		with.Body = []byte(`{"spec":{"ports":[` + strings.Repeat(`{"port":80},`, ports-1) + `{"port":80}]}}`)
		return with
	}
	web := k.sizeOf(ports("web", 2).Body)
	stored := receivedOf(kind.MeshServices, item("web", 0))
	for name, c := range map[string]struct {
		has  ownerSize
		item zonesync.Item
		says string
	}{
		"room": {ownerSize{1, 10, 1}, item("other", 10), ""},
		"one too many": {ownerSize{maxServices, 10, 1}, item("other", 10),
			"more than 20000 resources of the kind MeshService"},
		"the last one": {ownerSize{maxServices - 1, 10, 1}, item("other", 10), ""},
		"too large": {ownerSize{1, maxResourceBytes, 1}, item("other", 10),
			"more than 256 MiB of the kind MeshService"},
		"the last port":   {ownerSize{1, 10, maxPorts - 3}, ports("other", 3), ""},
		"a port too many": {ownerSize{1, 10, maxPorts - 3}, ports("other", 4), "more than 50000 ports of the kind"},
		"what is there": {ownerSize{2 * maxServices, 2 * maxResourceBytes, 2 * maxPorts},
			ports("web", 2), ""},
		"what is there grows": {ownerSize{maxServices, maxResourceBytes, 2}, item("web", web.bytes+1),
			"more than 256 MiB"},
		"what is there gets a port": {ownerSize{1, 10, maxPorts}, ports("web", 3), "more than 50000 ports"},
		"what is there loses one":   {ownerSize{1, 10, 2 * maxPorts}, ports("web", 1), ""},
		"a deletion": {ownerSize{2 * maxResources, 2 * maxResourceBytes, 2 * maxPorts},
			zonesync.Item{Key: item("x", 0).Key, Deleted: true}, ""},
	} {
		k.rows[stored.Key()] = known{key: item("web", 0).Key, size: web}
		k.sizes[east] = c.has
		err := k.checkBounds(c.item)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	delete(k.sizes, east)
	k.addSize(east, 1, web)
	k.addSize(east, -1, web)
	if len(k.sizes) > 0 {
		t.Errorf("an owner of nothing is kept: %v", k.sizes)
	}
	timeouts := newLogs(kind.Owner{}, nil, nil).kinds[kind.MeshTimeouts.Name]
	timeouts.sizes[east] = ownerSize{maxServices, 10, 0}
	if err := timeouts.checkBounds(ports("other", 2)); err != nil {
		t.Errorf("a resource of another kind: %v", err)
	}
	timeouts.sizes[east] = ownerSize{maxResources, 10, 0}
	if err := timeouts.checkBounds(ports("other", 2)); err == nil {
		t.Error("a resource of another kind beyond its bound is accepted")
	}
}
