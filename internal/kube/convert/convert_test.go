package convert

import "testing"

// TestSelects: a selector selects Pods with all of its labels. Where only ignored labels differ, the Pod has an Ignored
// inbound. A selector that has only ignored labels selects no other Pod: without them, it would select every Pod.
// (Adding inbounds in runtime.)
func TestSelects(t *testing.T) {
	settings := Settings{IgnoredLabels: []string{"hash"}}
	for _, c := range []struct {
		selector map[string]string
		want     Selection
	}{
		{nil, NotSelected},
		{map[string]string{"app": "web"}, Selected},
		{map[string]string{"app": "web", "hash": "blue"}, Selected},
		{map[string]string{"app": "web", "hash": "green"}, SelectedButIgnored},
		{map[string]string{"app": "api", "hash": "blue"}, NotSelected},
		{map[string]string{"hash": "blue"}, Selected},
		{map[string]string{"hash": "green"}, NotSelected},
	} {
		pod := map[string]string{"app": "web", "hash": "blue", "tier": "front"}
		if got := settings.Selects(&Service{Selector: c.selector}, pod); got != c.want {
			t.Errorf("the selector %v gives %d, want %d", c.selector, got, c.want)
		}
	}
}
