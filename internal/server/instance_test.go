package server

import (
	"regexp"
	"strings"
	"testing"
)

// TestInstanceID: the ID of an instance begins with its host name, is a DNS label, and is no other's.
func TestInstanceID(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	long := strings.Repeat("control-plane-", 10)
	for host, prefix := range map[string]string{
		"kuma-control-plane-7d9c5b6f4-x2x8v": "kuma-control-plane-7d9c5b6f4-x2x8v-",
		"Host_1.example.org":                 "host-1-example-org-",
		long:                                 long[:maxHost] + "-",
		"-ä-":                                "weft-",
		"":                                   "weft-",
	} {
		first, second := instanceID(host), instanceID(host)
		if !strings.HasPrefix(first, prefix) || !label.MatchString(first) || first == second {
			t.Errorf("two IDs of the host %q are %s and %s", host, first, second)
		}
	}
}
