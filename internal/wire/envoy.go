package wire

import (
	"strconv"
	"strings"
)

// The oldest supported Envoy. Releases before 1.40 cannot evaluate the decision on a TCP connection before a server is
// dialed (ADR 26). The tests run with the release that `make tools` brings; WEFT_ENVOY has them run with another.
const oldestEnvoyMajor, oldestEnvoyMinor = 1, 40

// OldestEnvoy is the oldest supported release, "MAJOR.MINOR".
const OldestEnvoy = "1.40"

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

// AgentVersion is the entry of a node's metadata that has the version of weft-dp beside an Envoy.
const AgentVersion = "weft.agentVersion"
