package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

// admin is a client of Envoy's administration interface.
type admin struct{ client *http.Client }

func newAdmin(r *runtimeDir, settings *wire.Settings) *admin {
	network, address := "unix", r.admin()
	if settings.AdminPort != 0 {
		network, address = "tcp", kind.HostPort(loopback, settings.AdminPort)
	}
	return &admin{&http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
	}}
}

func (a *admin) call(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("envoy responds %s to %s: %s", response.Status, path, strings.TrimSpace(string(body)))
	}
	return body, err
}

// configured reports whether Envoy has applied a first configuration. Liveness does not imply that: Envoy becomes live
// without configuration after a while.
func (a *admin) configured(ctx context.Context) bool {
	if _, err := a.call(ctx, http.MethodGet, "/ready"); err != nil {
		return false
	}
	clusters, listeners := false, false
	a.stats(ctx, `^(cluster_manager\.cds|listener_manager\.lds)\.update_success$`, func(name string, value float64) {
		clusters = clusters || strings.HasPrefix(name, "cluster_manager") && value > 0
		listeners = listeners || strings.HasPrefix(name, "listener_manager") && value > 0
	})
	return clusters && listeners
}

// connections returns the number of open connections at the listeners, plus the closed ones whose data is still being
// sent to the upstream. Connections to the administration interface and to Envoy's own internal listeners do not count.
func (a *admin) connections(ctx context.Context) (int, error) {
	total := 0
	err := a.stats(ctx, `^(listener\..*\.downstream_cx_active|tcp\..*\.upstream_flush_active)$`,
		func(name string, value float64) {
			if !strings.HasPrefix(name, "listener.admin.") && !strings.HasPrefix(name, "listener.envoy_internal_") &&
				!strings.Contains(name, ".worker_") {
				total += int(value)
			}
		})
	return total, err
}

func (a *admin) stats(ctx context.Context, filter string, each func(name string, value float64)) error {
	body, err := a.call(ctx, http.MethodGet, "/stats?format=json&filter="+url.QueryEscape(filter))
	if err != nil {
		return err
	}
	var response struct {
		Stats []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return fmt.Errorf("envoy's statistics: %w", err)
	}
	for _, s := range response.Stats {
		each(s.Name, s.Value)
	}
	return nil
}

// wantActive returns an error unless Envoy has each listener, by its name or its address, and it is not warming. An
// address alone does not tell listeners apart of which Envoy has rejected one.
func (a *admin) wantActive(ctx context.Context, listeners ...string) error {
	active, err := a.active(ctx)
	if err != nil {
		return err
	}
	for _, listener := range listeners {
		if !active[listener] {
			return fmt.Errorf("envoy has no active listener %s", listener)
		}
	}
	return nil
}

// active returns the names and the addresses of the listeners that are not warming.
func (a *admin) active(ctx context.Context) (map[string]bool, error) {
	body, err := a.call(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var response struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    uint32 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("envoy's listeners: %w", err)
	}
	active := map[string]bool{}
	for _, l := range response.Statuses {
		active[l.Name], active[kind.HostPort(l.Local.Socket.Address, l.Local.Socket.Port)] = true, true
	}
	return active, nil
}

// drain makes Envoy ask its clients to close their connections. Envoy still accepts new ones.
func (a *admin) drain(ctx context.Context) error {
	if _, err := a.call(ctx, http.MethodPost, "/healthcheck/fail"); err != nil {
		return err
	}
	_, err := a.call(ctx, http.MethodPost, "/drain_listeners?graceful&skip_exit")
	return err
}
