package kind

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"weft/resource"
)

// Protocol is the protocol of an inbound or a service port.
type Protocol string

// The protocols of inbounds and service ports.
const (
	TCP   Protocol = "tcp"
	TLS   Protocol = "tls"
	HTTP  Protocol = "http"
	HTTP2 Protocol = "http2"
	GRPC  Protocol = "grpc"
	Kafka Protocol = "kafka"
)

// Known returns the protocol that a document names in any case: TCP for mysql, of which proxies know no more. It
// returns TCP and false for a name that is no protocol.
func (p Protocol) Known() (is Protocol, known bool) {
	switch is = Protocol(strings.ToLower(string(p))); is {
	case TCP, TLS, HTTP, HTTP2, GRPC, Kafka:
		return is, true
	}
	return TCP, is == mysql
}

// ServedProtocol returns the protocol that proxies serve for one that a document names.
func (p Protocol) ServedProtocol() Protocol {
	is, _ := p.Known()
	return is
}

// normalized returns a known protocol as proxies serve it, and leaves another one to the checks.
func (p Protocol) normalized() Protocol {
	if is, known := p.Known(); known {
		return is
	}
	return p
}

// ServedAs returns the warnings about protocols of a Dataplane or a MeshService, as its user wrote it, that proxies
// serve as TCP.
func ServedAs(written resource.Any) (warnings []string) {
	warn := func(at string, p Protocol) {
		if name := strings.ToLower(string(p)); name != "" && string(p.ServedProtocol()) != name {
			warnings = append(warnings, fmt.Sprintf("%s: is %s, which proxies serve as %s", at, quote(string(p)),
				p.ServedProtocol()))
		}
	}
	switch o := written.(type) {
	case *resource.Object[MeshService]:
		for i := range o.Spec.Ports {
			warn(fmt.Sprintf("spec.ports[%d].appProtocol", i), o.Spec.Ports[i].AppProtocol)
		}
	case *resource.Object[Dataplane]:
		for i, in := range o.Spec.Networking.Inbound {
			warn(fmt.Sprintf("networking.inbound[%d].protocol", i), in.Protocol)
			warn(fmt.Sprintf("networking.inbound[%d].tags[%s]", i, ProtocolTag), Protocol(in.Tags[ProtocolTag]))
		}
	}
	return warnings
}

// IsHTTP reports whether proxies read requests of the protocol. All other protocols are TCP to them.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// Duration has the text form of Go, "1m30s", or one with days and years (of 365 days): "1d", "1d12h", "10y".
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("a duration is a string such as %q", "30s")
	}
	parsed, err := resource.ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// written formats a duration in whole years or days where possible.
func written(d time.Duration) string {
	switch {
	case d >= year && d%year == 0:
		return fmt.Sprintf("%dy", d/year)
	case d >= day && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

// Decimal is a number with a fraction, written as a number or as its text: 50, "1.9".
type Decimal float64

// DecimalText is the pattern of the text of a [Decimal]: no exponent.
const DecimalText = `^-?[0-9]+(\.[0-9]+)?$`

var decimalText = regexp.MustCompile(DecimalText)

// String returns the number without an exponent.
func (d Decimal) String() string { return strconv.FormatFloat(float64(d), 'f', -1, 64) }

// MarshalJSON implements json.Marshaler. A fraction is text, since clients of Kuma's API read whole numbers only.
func (d Decimal) MarshalJSON() ([]byte, error) {
	if d == Decimal(math.Trunc(float64(d))) {
		return []byte(d.String()), nil
	}
	return json.Marshal(d.String())
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Decimal) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !decimalText.MatchString(text) {
		return fmt.Errorf(`%s is not a number such as 50 or "1.9"`, quote(text))
	}
	*d = Decimal(value)
	return nil
}

// Time is an instant, written in RFC 3339 in UTC.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format(time.RFC3339Nano))
}

// AnyValue is a JSON value of any type, as its text.
type AnyValue string

// String returns the JSON text; empty for nil.
func (v *AnyValue) String() string {
	if v == nil {
		return ""
	}
	return string(*v)
}

// MarshalJSON implements json.Marshaler.
func (v AnyValue) MarshalJSON() ([]byte, error) { return []byte(v), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (v *AnyValue) UnmarshalJSON(raw []byte) error {
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return err
	}
	*v = AnyValue(text.String())
	return nil
}
