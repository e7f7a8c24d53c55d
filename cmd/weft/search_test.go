package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"weft/internal/rest"
	"weft/internal/search"
	"weft/kind"
)

// The output of a search has how many other resources match, and of which zones it may be old, since when.
func TestSearchOutput(t *testing.T) {
	since := kind.Time{Time: time.Now().Add(-3 * time.Hour)}
	results := &rest.SearchResults{More: 7, Items: []rest.Found{{Kind: "Mesh", Name: "shop",
		Match: search.Match{Field: search.Name, Value: "shop\x1b"}}}, UnknownZones: []rest.StaleZone{
		{UnknownZone: rest.UnknownZone{Zone: "east", Reason: "is away"}, Since: &since},
		{UnknownZone: rest.UnknownZone{Zone: "west", Reason: "never came"}}}}
	var out bytes.Buffer
	if err := printFound(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Mesh   -      -      shop", "\n7 more match;",
		"changes in the zone east: is away (since 3h)\n", "changes in the zone west: never came\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
