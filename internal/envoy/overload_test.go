package envoy

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	injectedresourcev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/injected_resource/v3"

	"weft/internal/testwait"
	"weft/kind"
)

// A proxy whose memory is short states that its application has not seen a request, so the client's proxy sends it to
// another endpoint.
func TestAnOverloadedProxySaysThatItServedNothing(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP)
	const monitor = "envoy.resource_monitors.injected_resource"
	pressure := filepath.Join(t.TempDir(), "pressure")
	if err := os.WriteFile(pressure, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	bootstrap := static(t, inboundOf(in, false))
	bootstrap.OverloadManager = &overloadv3.OverloadManager{
		RefreshInterval: duration(localIdleTimeout / 100),
		ResourceMonitors: []*overloadv3.ResourceMonitor{{
			Name: monitor,
			ConfigType: &overloadv3.ResourceMonitor_TypedConfig{
				TypedConfig: toAny(&injectedresourcev3.InjectedResourceConfig{Filename: pressure})},
		}},
		Actions: []*overloadv3.OverloadAction{{
			Name: "envoy.overload_actions.stop_accepting_requests",
			Triggers: []*overloadv3.Trigger{{
				Name:         monitor,
				TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: 0.95}},
			}},
		}},
	}
	runEnvoy(t, writeBootstrap(t, bootstrap))
	testwait.UntilTrue(t, "Envoy is overloaded", func() bool {
		response, err := http.Get("http://" + address(in))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable {
			return false
		}
		if got := response.Header.Get(unservedHeader); got != unservedNotReached {
			t.Errorf("%s: %q, want %q", unservedHeader, got, unservedNotReached)
		}
		return true
	})
}
