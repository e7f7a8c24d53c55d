package server

import (
	"crypto/rand"
	"strings"
)

const (
	// maxHost is the number of bytes of a host name in the ID of an instance. The ID is a DNS label with it.
	maxHost      = 52
	suffixLength = 10 // 50 random bits
)

// instanceID returns a new ID of an instance, "HOST-SUFFIX". The host name is that of the Pod in a cluster, so that the
// holder of a Lease is known without a look at other objects. The suffix differs with each start.
func instanceID(host string) string {
	label := strings.Trim(strings.Map(ofLabel, strings.ToLower(host)), "-")
	label = strings.TrimRight(label[:min(len(label), maxHost)], "-")
	if label == "" {
		label = "weft"
	}
	return label + "-" + strings.ToLower(rand.Text()[:suffixLength])
}

// ofLabel replaces what a DNS label may not have.
func ofLabel(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}
