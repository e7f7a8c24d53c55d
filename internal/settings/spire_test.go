package settings_test

import (
	"testing"

	"weft/internal/settings"
)

// TestSpireSocket: on Kubernetes, proxies find the SPIRE agent's socket where the injector mounts it. On machines, its
// place is not a setting of the control plane.
func TestSpireSocket(t *testing.T) {
	for _, c := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{}, ""},
		{map[string]string{"environment": "kubernetes", "store.type": "kubernetes"}, "/run/spire/sockets/socket"},
		{map[string]string{"environment": "kubernetes", "store.type": "kubernetes",
			"runtime.kubernetes.injector.spire.mountPath":      "/spire",
			"runtime.kubernetes.injector.spire.socketFileName": "agent.sock"}, "/spire/agent.sock"},
	} {
		s, _, err := settings.Load("", nil, c.values)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.SpireSocket(); got != c.want {
			t.Errorf("%v: the socket is %q, want %q", c.values, got, c.want)
		}
	}
}
