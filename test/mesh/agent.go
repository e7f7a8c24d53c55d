package mesh

import (
	"strconv"
)

// AgentFlags are the files and addresses with which weft-dp runs a proxy.
type AgentFlags struct {
	Address   string // of the control plane
	CA        string // the file with the CA of the control plane
	Dataplane string // the file with the Dataplane
	Token     string // the file with the token
	Envoy     string // the program
	Readiness int    // the port of the readiness probe; 0: none
}

// Args returns the arguments of weft-dp.
func (f AgentFlags) Args(more ...string) []string {
	return append([]string{"run", "--cp-address", f.Address, "--ca-cert-file", f.CA, "--dataplane-file", f.Dataplane,
		"--dataplane-token-file", f.Token, "--envoy", f.Envoy, "--readiness-port", strconv.Itoa(f.Readiness)}, more...)
}
