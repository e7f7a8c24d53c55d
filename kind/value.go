package kind

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Protocol is what an inbound or a service port speaks.
type Protocol string

const (
	TCP   Protocol = "tcp"
	TLS   Protocol = "tls"
	HTTP  Protocol = "http"
	HTTP2 Protocol = "http2"
	GRPC  Protocol = "grpc"
	Kafka Protocol = "kafka"
)

// IsHTTP says whether the proxies read requests of the protocol; what is not is bytes to them.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// Duration is written as Go writes it, "1m30s", or with a day as "1d" or "1d12h".
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("a duration is a string such as %q", "30s")
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

// ParseDuration reads a duration with days.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%s is not a duration such as \"30s\" or \"1d\"", quote(text))
	before, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		parsed, err := time.ParseDuration(text)
		if err != nil {
			return 0, wrong
		}
		return parsed, nil
	}
	days, err := strconv.ParseUint(before, 10, 16)
	if err != nil {
		return 0, wrong
	}
	whole := time.Duration(days) * 24 * time.Hour
	if rest == "" {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part < 0 || part >= 24*time.Hour {
		return 0, wrong
	}
	return whole + part, nil
}

// Time is an instant, written in RFC 3339 in UTC.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format(time.RFC3339Nano))
}
