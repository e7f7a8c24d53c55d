package graph_test

import (
	"testing"

	"weft/internal/proxy"
	"weft/internal/service"
)

func TestOnlyRedirectedDeliveryAtTheInboundsOwnAddressHasASource(t *testing.T) {
	for name, c := range map[string]struct {
		listener proxy.InboundListener
		want     string
	}{
		"redirected": {proxy.InboundListener{Address: "10.0.0.1", ServiceAddress: "10.0.0.1"},
			"127.0.0.6"},
		"bound": {proxy.InboundListener{Address: "10.0.0.1", ServiceAddress: "10.0.0.1",
			Bind: true}, ""},
		"delivered to loopback":        {proxy.InboundListener{Address: "10.0.0.1", ServiceAddress: "127.0.0.1"}, ""},
		"delivered to another address": {proxy.InboundListener{Address: "10.0.0.1", ServiceAddress: "10.0.0.9"}, ""},
		"IPv6, without an address":     {proxy.InboundListener{Address: "fd00::1", ServiceAddress: "fd00::1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.listener.ServiceSource(); got != c.want {
				t.Errorf("the application is dialed from %q, want %q", got, c.want)
			}
		})
	}
}

func TestADestinationIsReadFromEveryNameThatBeginsWithIt(t *testing.T) {
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
