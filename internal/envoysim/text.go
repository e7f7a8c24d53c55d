package envoysim

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Text returns the explanation as lines for a terminal: one per hop, and the verdict last.
func (e *Explanation) Text() string {
	var out strings.Builder
	columns := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	line := func(label, value string) {
		if value != "" {
			fmt.Fprintf(columns, "%s\t%s\n", label, value)
		}
	}
	line("request", e.requested())
	for _, name := range sortedKeys(e.Headers) {
		line("header", name+": "+e.Headers[name])
	}
	line("SNI", e.SNI)
	line("dials", e.dialed())
	line("listener", e.Listener)
	line("match", e.matched())
	line("route", e.Route)
	for _, source := range e.Sources {
		line("  "+source.Step, source.text())
	}
	for _, change := range e.Changes {
		line("change", change)
	}
	for _, m := range e.Mirrors {
		line("mirror", fmt.Sprintf("%s, %g %% of the requests", m.Cluster, m.Percentage))
	}
	for i := range e.Settings {
		line("setting", e.Settings[i].text())
	}
	line("destination", e.Destination)
	line("mutual TLS", e.security())
	e.endpointLines(line, "")
	calls := "requests"
	if e.Method == "" {
		calls = "connections"
	}
	for _, b := range e.Backends {
		line("backend", fmt.Sprintf("%s, %d of %d %s", b.Destination, b.Weight, e.weights(), calls))
		line("  unserved", b.Reason)
		e.endpointLines(line, b.Destination)
	}
	line("verdict", e.verdict())
	_ = columns.Flush() // a strings.Builder never fails
	return out.String()
}

// endpointLines writes the endpoints of a destination; "": of the only one.
func (e *Explanation) endpointLines(line func(label, value string), destination string) {
	locality := ""
	for i := range e.Endpoints {
		v := &e.Endpoints[i]
		if v.Destination != destination {
			continue
		}
		if v.Locality != locality {
			locality = v.Locality
			line(v.localityLabel(), locality)
		}
		v.lines(line)
	}
}

func (e *Explanation) weights() (sum uint64) {
	for _, b := range e.Backends {
		sum += uint64(b.Weight)
	}
	return sum
}

func (e *Explanation) requested() string {
	requested := fmt.Sprintf("from %s to %s", e.From, e.To)
	if e.Method == "" {
		return requested
	}
	return e.Method + " " + e.Path + " " + requested
}

func (e *Explanation) matched() string {
	if e.SNIMatch == "" {
		return ""
	}
	return "SNI " + e.SNIMatch
}

func (e *Explanation) dialed() string {
	if e.Captured {
		return e.Address + ", redirected to the proxy"
	}
	return e.Address
}

func (s *Source) text() string {
	switch {
	case s.Step == Overrides && s.Detail != "":
		return s.Field + ", for " + s.Detail
	case s.Step == Overrides:
		return s.Field
	case s.Detail == "":
		return "by " + s.Field
	}
	return s.Detail + ", by " + s.Field
}

func (s *Setting) text() string {
	text := s.Field + " " + s.Value
	if s.Destination != "" {
		text += " to " + s.Destination
	}
	if s.Origin == "" {
		return text + ", the default"
	}
	return text + ", by " + s.Origin
}

func (e *Explanation) security() string {
	switch {
	case e.Destination == "" && e.Backends == nil || e.Verdict == Forwarded:
		return ""
	case !e.MutualTLS:
		return "no"
	}
	return fmt.Sprintf("yes, client %s, server %s", e.SpiffeIDs, strings.Join(e.ServerSpiffeIDs, " or "))
}

func (e *Explanation) verdict() string {
	if e.Reason == "" {
		return string(e.Verdict)
	}
	return fmt.Sprintf("%s: %s", e.Verdict, e.Reason)
}

func (v *EndpointVerdict) localityLabel() string {
	if v.Fallback {
		return "fallback"
	}
	return "first"
}

// lines writes an endpoint and, for a zone ingress, the result in its zone.
func (v *EndpointVerdict) lines(line func(label, value string)) {
	there := v.Ingress
	if v.Egress != nil {
		line("zone egress", v.text())
		v.Egress.lines(line)
		return
	}
	if there == nil {
		line("endpoint", v.text())
		line("  route", v.Route)
		v.receivedLines(line)
		return
	}
	line("zone ingress", v.Address+" "+there.text())
	line("  SNI", there.SNI)
	switch {
	case there.Result != nil:
		there.Result.lines(line)
	case v.Reason != "":
		line("  closed", v.Reason)
	}
}

func (t *IngressVerdict) text() string {
	text := t.Name + " of the zone " + t.Zone
	if !t.Healthy {
		text += ", not healthy"
	}
	if t.NotQueried != "" {
		text += "; the result in that zone is unknown: " + t.NotQueried
	}
	return text
}

func (a *IngressResult) lines(line func(label, value string)) {
	line("  listener", a.Listener)
	line("  destination", a.Cluster)
	for i := range a.Endpoints {
		line("  endpoint", a.Endpoints[i].text())
		line("  route", a.Endpoints[i].Route)
		a.Endpoints[i].receivedLines(line)
	}
	line("  closed", a.Reason)
}

// receivedLines also has what Envoy rejects of a listener that serves an earlier version.
func (v *EndpointVerdict) receivedLines(line func(label, value string)) {
	if v.Rejection != "" && v.Reason != RejectedText(v.Rejection) {
		line("  rejected", "Envoy serves an earlier version of the listener, and rejects this one: "+v.Rejection)
	}
	for i := range v.Received {
		line("  received", v.Received[i].text())
	}
}

func (v *EndpointVerdict) text() string {
	text := strings.TrimSpace(v.Address+" "+v.Proxy) + ": "
	switch {
	case v.Egress != nil && v.Egress.Forwarded && v.Reason == "":
		return text + "forwards the TLS connection by SNI"
	case !v.Allowed:
		return text + "denied: " + v.Reason
	case v.Rule == "":
		return text + "allowed (plaintext)"
	case v.ShadowRule != "":
		return text + "allowed by " + v.Rule + "; in shadow denied by " + v.ShadowRule
	}
	return text + "allowed by " + v.Rule
}
