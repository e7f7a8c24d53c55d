package wire

import (
	"strconv"
	"strings"
)

// The oldest Envoy that agent and control plane are made for: every test passes with it. They run with the one
// that `make tools` brings; WEFT_ENVOY has them run with another.
const oldestEnvoyMajor, oldestEnvoyMinor = 1, 36

// OldestEnvoy is it, as it is written for people.
const OldestEnvoy = "1.36"

// EnvoyTooOld says whether a version such as "1.35.2" is older than [OldestEnvoy]. What does not begin
// like a version is not known to be.
func EnvoyTooOld(version string) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(second)
	if err != nil {
		return false
	}
	return major < oldestEnvoyMajor || major == oldestEnvoyMajor && minor < oldestEnvoyMinor
}
