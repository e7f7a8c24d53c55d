// Package probecall has the form of the calls of the kubelet that the injector leads to the probe proxy of a sidecar.
//
// The injector declares each call to the probe proxy in a text: the digest of its headers, and its path. The probe
// proxy forwards only calls whose path and headers are declared, since every client reaches its port.
package probecall

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Headers that tell the probe proxy what the probe had.
const (
	HeaderPrefix      = "X-Kuma-Probes-"
	HostHeader        = HeaderPrefix + "Host"
	SchemeHeader      = HeaderPrefix + "Scheme"
	TimeoutHeader     = HeaderPrefix + "Timeout" // seconds
	GRPCServiceHeader = HeaderPrefix + "GRPC-Service"
)

// transportHeaders are headers that the kubelet, or its HTTP client, sets or leaves out, whatever a probe declares.
var transportHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Length", "Host", "Trailer",
	"Transfer-Encoding", "User-Agent"}

// digestBytes is the length of a digest. It protects no secret: who knows the Pod knows the headers.
const digestBytes = 16

// Declaration returns the text that declares a call: the digest of its headers, which is empty without a header, and
// the path with the query, which begins with /. Neither the order of the headers nor the case of their names counts.
func Declaration(path string, headers http.Header) string {
	kept := http.Header{}
	for name, values := range headers {
		name = http.CanonicalHeaderKey(name)
		if slices.Contains(transportHeaders, name) {
			continue
		}
		for _, value := range values {
			kept[name] = append(kept[name], strings.Trim(value, " \t"))
		}
	}
	if len(kept) == 0 {
		return path
	}
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		fmt.Fprintf(digest, "%q %q\n", name, kept[name])
	}
	return base64.RawURLEncoding.EncodeToString(digest.Sum(nil)[:digestBytes]) + path
}
