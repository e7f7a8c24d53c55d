package kind_test

import (
	"encoding/json"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "0s": 0, "-1s": -time.Second,
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "365d": 365 * 24 * time.Hour,
	} {
		var got kind.Duration
		if err := json.Unmarshal([]byte(`"`+text+`"`), &got); err != nil || time.Duration(got) != want {
			t.Errorf("%q is %v (%v), want %v", text, time.Duration(got), err, want)
		}
		written, err := json.Marshal(got)
		var again kind.Duration
		if err != nil || json.Unmarshal(written, &again) != nil || again != got {
			t.Errorf("%q was written as %s (%v)", text, written, err)
		}
	}
	for _, text := range []string{"", "d", "1", "1xd", "-1d", "1.5d", "1d-5h", "1d25h", "1h1d", "1d1d", "99999d",
		"soon"} {
		if got, err := resource.ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestPortRef(t *testing.T) {
	for text, want := range map[string]kind.PortRef{`80`: {Number: 80}, `"http"`: {Name: "http"}} {
		var got kind.PortRef
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v (%v)", text, got, err)
		}
		if written, _ := json.Marshal(got); string(written) != text {
			t.Errorf("%s was written as %s", text, written)
		}
	}
	if err := json.Unmarshal([]byte(`-1`), new(kind.PortRef)); err == nil {
		t.Error("a negative port is read")
	}
}

func TestSubset(t *testing.T) {
	have := map[string]string{"a": "b", "empty": ""}
	for _, test := range []struct {
		want map[string]string
		in   bool
	}{
		{nil, true},
		{map[string]string{"a": "b"}, true},
		{map[string]string{"a": "c"}, false},
		{map[string]string{"empty": ""}, true},
		{map[string]string{"absent": ""}, false},
	} {
		if got := kind.Subset(test.want, have); got != test.in {
			t.Errorf("Subset(%v) is %v", test.want, got)
		}
	}
}
