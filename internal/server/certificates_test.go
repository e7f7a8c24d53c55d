package server

import (
	"slices"
	"testing"

	"weft/internal/settings"
)

// Agents dial the address at which the control plane listens for them, whatever else listens everywhere.
func TestTheServerCertificateNamesWhereItListens(t *testing.T) {
	s := &settings.Settings{DataPlane: settings.Address{Interface: "127.40.1.1"}}
	s.APIOverTLS.Interface = "0.0.0.0"
	if names := ownAddresses(s); !slices.Contains(names, "127.40.1.1") {
		t.Errorf("the certificate is for %v, and proxies are served at 127.40.1.1", names)
	}
}
