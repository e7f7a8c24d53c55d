package server

import (
	"testing"
	"time"

	"weft/internal/join"
)

func TestLinksOfKinds(t *testing.T) {
	since := time.Unix(1000, 0)
	is := kindOf(&join.Link{Since: since, Problem: "no"})
	if is.Connected || is.Since == nil || !is.Since.Equal(since) || is.Problem != "no" {
		t.Errorf("a kind that is not connected: %+v", is)
	}
	if is := kindOf(&join.Link{Connected: true, Since: since}); !is.Connected || is.Since != nil || is.Problem != "" {
		t.Errorf("a kind that is connected: %+v", is)
	}
}
