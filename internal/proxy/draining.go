package proxy

import (
	"slices"

	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// draining returns the listeners that are served and no longer configured, and the removed inbounds of configured
// listeners, by [kind.Inbound.Section]. Listeners that clients still use are excluded: retained endpoints, and the
// former address of an inbound that does not serve at its new address yet.
func (s *Stage) draining(r *table.Reader, key state.ProxyKey) []string {
	serving, ok := s.state.ListenerStatus(r, key)
	if !ok {
		return nil
	}
	n, ok := s.state.Networking(r, key)
	if !ok {
		return nil
	}
	wanted := map[string]bool{}
	for _, in := range state.CurrentInbounds(n) {
		wanted[in.Listener()], wanted[in.Section()] = true, true
	}
	retained := map[string]bool{}
	for _, endpoint := range s.state.RetainedOf(r, key) {
		retained[endpoint.Listener()] = true
	}
	for _, in := range state.CurrentInbounds(n) {
		if served := service.ServedInbound(n, &serving.Spec, &in); served != nil {
			retained[served.Listener()] = retained[served.Listener()] || !wanted[served.Listener()]
		}
	}
	var gone []string
	for _, in := range serving.Spec.Inbounds {
		what := in.Listener()
		if wanted[what] {
			what = in.Section()
		}
		if !wanted[what] && !retained[in.Listener()] && !slices.Contains(gone, what) {
			gone = append(gone, what)
		}
	}
	gone = append(gone, s.zoneProxies.DrainingIngresses(r, key, n.ZoneIngress, &serving.Spec)...)
	return append(gone, s.zoneProxies.DrainingEgresses(r, key, n.ZoneEgress, &serving.Spec)...)
}

// LacksListeners returns whether an agent reports on a proxy, and its listener status lacks an inbound or a section of
// its resource.
func (s *Stage) LacksListeners(r *table.Reader, key state.ProxyKey) bool {
	serving, ok := s.state.ListenerStatus(r, key)
	n, there := s.state.Networking(r, key)
	if !ok || !there || serving.Spec.Run == "" {
		return false
	}
	has := map[string]bool{}
	for _, in := range serving.Spec.Inbounds {
		has[in.Section()] = true
	}
	ingresses, egresses := zoneproxy.ServedIngresses(&serving.Spec), zoneproxy.ServedEgresses(&serving.Spec)
	for _, listener := range append(ingresses, egresses...) {
		has[listener] = true
	}
	return slices.ContainsFunc(state.CurrentInbounds(n), func(in kind.Inbound) bool { return !has[in.Section()] }) ||
		n.ZoneIngress != nil && !has[n.ZoneIngress.Listener()] || n.ZoneEgress != nil && !has[n.ZoneEgress.Listener()]
}
