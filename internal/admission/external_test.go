package admission

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestLocalAddressOfAnExternalService: external services can't make egresses connect to their own machines.
func TestLocalAddressOfAnExternalService(t *testing.T) {
	rows := memory.New(memory.Options{})
	defer rows.Close()
	w := New(rows, Options{Zone: "east", LocalNetworks: []netip.Prefix{netip.MustParsePrefix("127.30.0.0/16")}})
	if _, err := w.Put(t.Context(), kind.Meshes.Make("", "default", kind.Mesh{}), Change{}); err != nil {
		t.Fatal(err)
	}
	for address, reason := range map[string]string{
		"127.0.0.1": "a loopback address", "169.254.169.254": "a link-local or broadcast address",
		"168.63.129.16": "a metadata address", "localhost": "a loopback address", "api.localhost": "a loopback address",
		"::1": "a loopback address", "64:ff9b::7f00:1": "a loopback address",
		"255.255.255.255": "a link-local or broadcast address", "250.0.0.1": "a reserved or broadcast address",
		"0.0.0.0":          "means every address",
		"::ffff:127.0.0.1": "write ::ffff:127.0.0.1 as 127.0.0.1", "2130706433": "neither an IP address",
		"127.1":  "neither an IP address",
		"0x7f.1": "neither an IP address", "0x7f000001": "neither an IP address", "0177.0.0.1": "neither an IP address",
		"fe80::1%lo": "is not an IP address",
		"127.30.1.1": "", "10.0.0.1": "", "example.com": "", "2001:db8::1": "",
	} {
		_, err := w.Put(t.Context(), kind.MeshExternalServices.Make("default", "out", kind.MeshExternalService{
			Match: kind.ExternalMatch{Port: 80}, Endpoints: []kind.ExternalEndpoint{{Address: address, Port: 80}},
		}), Change{})
		var rejected *resource.Error
		if reason == "" && err != nil || reason != "" &&
			(!errors.As(err, &rejected) || rejected.Code != resource.Invalid ||
				!strings.Contains(err.Error(), reason)) {
			t.Errorf("%s: %v, want %q", address, err, reason)
		}
	}
}
