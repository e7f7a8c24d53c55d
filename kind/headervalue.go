package kind

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// HeaderOperators are the operators of Envoy that a header's value may have. No other is accepted: one that Envoy does
// not know makes it reject the route, and some read the files and the environment of the proxy.
var HeaderOperators = []string{
	"BYTES_RECEIVED", "CONNECTION_ID", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_LOCAL_ADDRESS",
	"DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_LOCAL_PORT", "DOWNSTREAM_REMOTE_ADDRESS",
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_REMOTE_PORT", "HOSTNAME", "PROTOCOL", "REQ",
	"REQUESTED_SERVER_NAME", "RESP", "RESPONSE_CODE", "RESPONSE_CODE_DETAILS", "RESPONSE_FLAGS", "ROUTE_NAME",
	"START_TIME", "UPSTREAM_CLUSTER", "UPSTREAM_HOST",
}

// headerOperator matches an operator of Envoy, with an argument in parentheses or a maximum length.
var headerOperator = regexp.MustCompile(`^%([A-Z][A-Z0-9_]*)(\([^()%]*\))?(:[0-9]+)?%`)

// headerNameArgument matches the argument of REQ and RESP: a header, and the one that is used where it is absent.
var headerNameArgument = regexp.MustCompile("^\\((:?[A-Za-z0-9!#$&'*+.^_`|~-]+)(\\?:?[A-Za-z0-9!#$&'*+.^_`|~-]+)?\\)$")

// HeaderValueProblem returns the problem of the value of a header with operators of Envoy, or "". A percent sign that
// begins no operator stands for itself.
func HeaderValueProblem(value string) string {
	if value == "" {
		return "is required"
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Sprintf("%s has a control character", quote(value))
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			continue
		}
		found := headerOperator.FindStringSubmatch(value[i:])
		switch {
		case strings.HasPrefix(value[i:], "%%"):
			i++
		case found == nil:
		case !slices.Contains(HeaderOperators, found[1]):
			return fmt.Sprintf("%s is not an operator of this field; write %%%% for a percent sign, or use one of %s",
				quote(found[0]), strings.Join(HeaderOperators, ", "))
		case found[1] == "REQ" || found[1] == "RESP":
			if !headerNameArgument.MatchString(found[2]) {
				return fmt.Sprintf("%s has to name a header, such as %%REQ(x-request-id)%%", quote(found[0]))
			}
			i += len(found[0]) - 1
		case found[2] != "" || found[3] != "":
			return fmt.Sprintf("%s has an argument, which it does not take here", quote(found[0]))
		default:
			i += len(found[0]) - 1
		}
	}
	return ""
}

// EnvoyFormat returns a valid header value in the form that Envoy reads: each percent sign that begins no operator is
// escaped.
func EnvoyFormat(value string) string {
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			out.WriteByte(value[i])
			continue
		}
		found := headerOperator.FindString(value[i:])
		if found == "" {
			out.WriteString("%%")
			if strings.HasPrefix(value[i:], "%%") {
				i++
			}
			continue
		}
		out.WriteString(found)
		i += len(found) - 1
	}
	return out.String()
}
