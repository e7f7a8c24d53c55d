package proxy_test

import (
	"testing"

	"weft/internal/proxy"
)

// Only redirected delivery at the inbound's own address has a source.
func TestSourceOfRedirectedDelivery(t *testing.T) {
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
