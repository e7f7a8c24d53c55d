package service_test

import (
	"testing"

	"weft/internal/service"
)

// A destination is read from every name that begins with it.
func TestParseDestination(t *testing.T) {
	key := service.DestinationKey{Mesh: "default", Zone: "east-1", Service: "web.shop", Port: 80}
	for _, name := range []string{key.String(), key.String() + "_241.0.0.2"} {
		if got, ok := service.ParseDestination(name); !ok || got != key {
			t.Errorf("%s is read as %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "self_inbound_10.0.0.1_80", "kri_msvc_default_east__web",
		"kri_msvc_default_east__web_http"} {
		if got, ok := service.ParseDestination(name); ok {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}
