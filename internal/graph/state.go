// Package graph creates the derived values of a zone or of global: the tables of the rows, and the stages that read
// them. Derived functions are pure, so every value depends on the table only. A package that needs one stage takes that
// stage.
package graph

import (
	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/zoneproxy"
	"weft/internal/zoneroute"
)

// State is the rows of a zone, or of global, which has no zone, and the stages in their order: each reads the rows and
// earlier stages only.
type State struct {
	Tables      *state.Tables
	Identity    *identity.Stage
	Routes      *zoneroute.Stage
	Services    *service.Stage
	ZoneProxies *zoneproxy.Stage
	Proxies     *proxy.Stage
}

// NewState returns an empty state of a zone.
func NewState(zone string) *State {
	s := &State{Tables: state.New(zone)}
	s.Identity = identity.New(s.Tables)
	s.Routes = zoneroute.New(s.Tables, s.Identity)
	s.Services = service.New(s.Tables, s.Identity, s.Routes)
	s.ZoneProxies = zoneproxy.New(s.Tables, s.Identity, s.Routes, s.Services)
	s.Proxies = proxy.New(s.Tables, s.Identity, s.Services, s.ZoneProxies)
	return s
}
