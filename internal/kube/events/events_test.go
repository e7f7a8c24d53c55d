package events

import (
	"testing"
	"time"

	"weft/internal/kube/convert"
)

// TestMessageIsOneLine: kubectl cuts the message of an event at its first line break.
func TestMessageIsOneLine(t *testing.T) {
	on := convert.Ref{Kind: "Pod", Namespace: "demo", Name: "web"}
	got := object(convert.Event{On: on, Reason: "R", Message: "first\n  second"}, time.Now())["message"]
	if got != "first second" {
		t.Errorf("the message is %q", got)
	}
}
