package envoysim

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
)

// World is the configuration of all proxies of a mesh.
type World interface {
	// Config returns the resources of a proxy, or false for an unknown proxy.
	Config(state.ProxyKey) ([]*xds.Resource, bool)
	// SpiffeIDs returns the SPIFFE IDs of the proxy's certificate, or none without a certificate.
	SpiffeIDs(state.ProxyKey) kind.SpiffeIDs
	// Instance returns the DNS SAN of the proxy's certificate, which no other proxy has.
	Instance(state.ProxyKey) string
	// ProxyAt returns the proxy that listens at an address.
	ProxyAt(address string, port uint32) (state.ProxyKey, bool)
	// Egress returns the zone egress of this zone that its proxies dial at an address.
	Egress(address string, port uint32) (state.ProxyKey, bool)
	// IngressAt returns the zone ingress that other zones dial at an address.
	IngressAt(address string, port uint32) (ZoneIngress, bool)
	// Rejection returns Envoy's message about the newest version of a proxy's listener, which it rejects, and whether
	// it serves an earlier one. The message is empty where it rejects none.
	Rejection(proxy state.ProxyKey, at Address) (message string, serves bool)
	// Exclusions returns the listeners that a proxy does not get, since others have their address.
	Exclusions(state.ProxyKey) []Exclusion
}

// Exclusion is a listener that a proxy does not get.
type Exclusion struct {
	At      string // its address and port
	Service string // of the virtual IP; empty: it is a listener of the proxy's own resource
	Reason  string // a sentence
}

// ZoneIngress is a zone ingress of another zone.
type ZoneIngress struct {
	Zone    string
	Ingress state.ProxyKey // without a mesh: a ZoneIngress
	Healthy bool
}

// RemoteZones returns the result of a request that arrives at an ingress of another zone, as that zone computes it.
type RemoteZones func(zone string, request CrossZoneRequest) (*IngressResult, error)

// Request is a request to explain.
type Request struct {
	From state.ProxyKey
	// To is a service, a virtual IP or an address, with or without a port: "backend", "backend:80", "241.0.0.1",
	// "127.0.0.1:10001".
	To     string
	Method string // default GET
	Path   string // with the query; default /
	// Headers are the headers by their names in lower case. Several values of a header are joined with commas.
	Headers map[string]string
	// SNI is the SNI of the application's own TLS; empty: it uses none, or sends none.
	SNI string
}

// Verdict is the result of a request.
type Verdict string

const (
	// Allowed means that every endpoint accepts the request.
	Allowed Verdict = "allowed"
	// Denied means that no endpoint accepts the request.
	Denied Verdict = "denied"
	// Partly means that the result depends on the endpoint that the load balancer selects.
	Partly Verdict = "partly"
	// Unserved means that the request reaches no endpoint.
	Unserved Verdict = "unserved"
	// Responded means that the proxy of the client responds itself, with a redirect.
	Responded Verdict = "responded"
	// Forwarded means that the request leaves the mesh unchanged, and its result is unknown.
	Forwarded Verdict = "forwarded"
	// Unknown means that the request goes to another zone, which cannot be queried.
	Unknown Verdict = "unknown"
)

// Explanation is the path of a request, hop by hop. Fields of hops that the request does not reach are empty.
type Explanation struct {
	From string `json:"from"`
	kind.SpiffeIDs
	To     string `json:"to"`
	Method string `json:"method,omitempty"` // empty where no proxy reads requests
	Path   string `json:"path,omitempty"`
	// Headers are the headers of the request, where a proxy reads requests.
	Headers  map[string]string `json:"headers,omitempty"`
	SNI      string            `json:"sni,omitempty"`     // of the application's own TLS
	Address  string            `json:"address,omitempty"` // what the application dials
	Listener string            `json:"listener,omitempty"`
	Captured bool              `json:"captured,omitempty"` // only redirected connections reach the listener
	Route    string            `json:"route,omitempty"`
	// SNIMatch is the match that the SNI has: the name, or *.DOMAIN.
	SNIMatch string `json:"sniMatch,omitempty"`
	// Addressed is the destination that the application calls. Its route may lead to others.
	Addressed string `json:"addressed,omitempty"`
	// Sources are the fields of policies that the route is from, in the order of its steps. They are of the control
	// plane's state, and all other fields of the configuration.
	Sources []Source `json:"sources,omitempty"`
	// Changes are the changes of the request and of the response, in words. Redirect is the response of the proxy
	// itself. Mirrors are the destinations that get copies.
	Changes  []string `json:"changes,omitempty"`
	Redirect string   `json:"redirect,omitempty"`
	Mirrors  []Mirror `json:"mirrors,omitempty"`
	// Settings are the times, retries and hashes of the request, each with its origin.
	Settings        []Setting         `json:"settings,omitempty"`
	Destination     string            `json:"destination,omitempty"` // empty where Backends are set
	Backends        []BackendVerdict  `json:"backends,omitempty"`    // the destinations that share the requests
	MutualTLS       bool              `json:"mutualTLS"`
	ServerSpiffeIDs []string          `json:"serverSpiffeIDs,omitempty"`
	Retries         uint32            `json:"retries,omitempty"`
	RetryOn         string            `json:"retryOn,omitempty"`
	Endpoints       []EndpointVerdict `json:"endpoints,omitempty"`
	Verdict         Verdict           `json:"verdict"`
	Reason          string            `json:"reason,omitempty"`
}

// Overrides is the step of a [Source] with a field that the step before it overrides.
const Overrides = "overrides"

// Source is a field of a policy that a step of a route is from.
type Source struct {
	Step string `json:"step"` // match, filters, backends, overrides or unresolved
	// Field is the field, such as "MeshHTTPRoute default/web to[0].rules[1].default.filters".
	Field string `json:"field"`
	// Detail is the match, or the reason for which a backend is unresolved.
	Detail string `json:"detail,omitempty"`
}

// BackendVerdict is one of several destinations that a request may lead to.
type BackendVerdict struct {
	Destination string `json:"destination"`
	Weight      uint32 `json:"weight"` // its share of the requests, relative to the sum of the weights
	// Reason is set where a request that it gets reaches no endpoint.
	Reason string `json:"reason,omitempty"`
}

// EndpointVerdict is the result of the request at one endpoint.
type EndpointVerdict struct {
	// Destination is the backend of the endpoint, where a request may lead to several.
	Destination string `json:"destination,omitempty"`
	// Locality is the locality of the endpoint: local or remote, or empty for a destination without localities.
	// Fallback states that the endpoint is dialed only while no endpoint of an earlier locality is healthy.
	Locality string `json:"locality,omitempty"`
	Fallback bool   `json:"fallback,omitempty"`
	Address  string `json:"address"`
	Proxy    string `json:"proxy,omitempty"`
	kind.SpiffeIDs
	Listener string `json:"listener,omitempty"`
	// Route is the name of the server's route that the request takes, where a policy has named it.
	Route   string `json:"route,omitempty"`
	Allowed bool   `json:"allowed"`
	// Rule is the policy rule that decided. ShadowRule is a rule in shadow mode that would deny.
	Rule       string `json:"rule,omitempty"`
	ShadowRule string `json:"shadowRule,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Rejection is Envoy's message about the newest version of the listener, which it rejects. Allowed is the result of
	// that version; false where Envoy has accepted no version.
	Rejection string `json:"rejection,omitempty"`
	// Received are the fields of policies about the traffic that the server receives from this client, such as its
	// timeouts. They are of the state of the control plane of the server's zone.
	Received []Setting `json:"received,omitempty"`
	// Ingress is set where the endpoint is a zone ingress of another zone. It has the result in that zone, and Allowed
	// states that every server there accepts the request.
	Ingress *IngressVerdict `json:"ingress,omitempty"`
	// Egress is set where the endpoint is a zone egress of the client's zone. Allowed states that the egress allows the
	// request, or that every server to which it forwards the request accepts it.
	Egress *EgressVerdict `json:"egress,omitempty"`
}

// IngressVerdict is the result of a request that goes to another zone through one of its ingresses.
type IngressVerdict struct {
	Zone    string `json:"zone"`
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"` // as its zone says
	SNI     string `json:"sni"`     // of the destination at the ingress
	// Result is absent where the zone could not be queried; NotQueried has the reason.
	Result     *IngressResult `json:"result,omitempty"`
	NotQueried string         `json:"notQueried,omitempty"`
}

// Explain returns the path and the result of a request, and calls remote where the request goes to another zone. It
// returns an error for an unknown proxy, and where To matches no destination of the proxy.
func Explain(world World, request Request, remote RemoteZones) (*Explanation, error) {
	resources, ok := world.Config(request.From)
	if !ok {
		return nil, fmt.Errorf("there is no proxy %s: no Dataplane of that name is in the mesh", request.From)
	}
	client, err := Load(resources)
	if err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", request.From, err)
	}
	address, err := client.resolve(request.To)
	if err != nil {
		return nil, fmt.Errorf("%s reaches nothing at %q: %w%s", request.From, request.To, err,
			exclusionOf(world, request.From, func(e Exclusion) bool {
				return e.Service != "" && (e.Service == request.To || strings.HasPrefix(request.To, e.Service+":"))
			}))
	}
	call := Call{Address: address.Address, Port: address.Port, Method: request.Method, Path: request.Path,
		Headers: request.Headers, TLS: request.SNI != "", SNI: request.SNI}
	way := client.Outbound(call)
	e := explanation(world.SpiffeIDs(request.From), request, address, way)
	excluded := func(e Exclusion) bool { return e.At == address.String() }
	switch {
	case way.Error != "":
		e.Verdict, e.Reason = Unserved, way.Error+exclusionOf(world, request.From, excluded)
	case way.Redirect != "":
		e.Verdict, e.Reason = Responded, "the proxy redirects: "+way.Redirect
	case way.Passthrough:
		e.Verdict, e.Reason = Forwarded, "no service of the mesh has this address"
		if reason := exclusionOf(world, request.From, excluded); reason != "" {
			e.Reason = "the proxy has no listener for the service" + reason
		}
	default:
		(&simulation{world, remote, request.From.Mesh, e.SpiffeIDs, world.Instance(request.From), client,
			way.Sent}).backends(e, way.Backends)
	}
	return e, nil
}

func explanation(names kind.SpiffeIDs, request Request, address Address, way OutboundResult) *Explanation {
	e := &Explanation{
		From: request.From.String(), SpiffeIDs: names, To: request.To, Address: address.String(),
		Listener: way.Listener, Captured: way.Captured, Route: way.Route,
		MutualTLS: way.TLS, ServerSpiffeIDs: way.ServerSpiffeIDs, Retries: way.Retries, RetryOn: way.RetryOn,
		Addressed: way.Addressed, Changes: way.Changes, Redirect: way.Redirect, Mirrors: way.Mirrors,
		Settings: way.Settings, SNI: request.SNI, SNIMatch: way.SNI,
	}
	for _, b := range way.Backends {
		for _, setting := range b.Settings {
			if len(way.Backends) > 1 {
				setting.Destination = b.Cluster
			}
			e.Settings = append(e.Settings, setting)
		}
	}
	for _, b := range way.Backends {
		e.Backends = append(e.Backends, BackendVerdict{b.Cluster, b.Weight, b.Error})
	}
	if len(e.Backends) == 1 {
		e.Destination, e.Backends = e.Backends[0].Destination, nil
	}
	if way.Route != "" {
		e.Method, e.Path = orElse(request.Method, "GET"), orElse(request.Path, "/")
		e.Headers = request.Headers
	}
	return e
}

// simulation is a request on its way to the endpoints of its destination.
type simulation struct {
	world    World
	remote   RemoteZones
	mesh     string
	names    kind.SpiffeIDs // of the client; instance is its DNS SAN
	instance string
	client   *Config
	call     Call
}

// backends evaluates the request at every endpoint of every backend and summarizes. Fallback endpoints have a result,
// but do not count for the summary.
func (a *simulation) backends(e *Explanation, all []Backend) {
	var sum tally
	for _, backend := range all {
		if backend.Error != "" {
			sum.unserved++
			sum.setReason(backend.Error)
		}
		for _, endpoint := range backend.Endpoints {
			v := a.endpoint(endpoint)
			v.Locality, v.Fallback = endpoint.Locality, endpoint.Fallback
			if len(all) > 1 {
				v.Destination = backend.Cluster
			}
			if !endpoint.Fallback {
				sum.add(&v)
			}
			e.Endpoints = append(e.Endpoints, v)
		}
	}
	e.Verdict, e.Reason = sum.verdict(), sum.reason
}

func (a *simulation) endpoint(e Endpoint) EndpointVerdict {
	call := a.call
	if call.TLS = e.TLS; e.TLS {
		call.PeerURIs, call.PeerDNS = a.names.List(), a.instance
	}
	if egress, ok := a.world.Egress(e.At.Address, e.At.Port); ok {
		return a.throughEgress(e, egress, call)
	}
	if _, here := a.world.ProxyAt(e.At.Address, e.At.Port); !here {
		if ingress, ok := a.world.IngressAt(e.At.Address, e.At.Port); ok {
			return a.throughIngress(e, ingress)
		}
	}
	v := callServer(a.world, e.At, call)
	a.accept(&v, e)
	return v
}

// accept applies the client's verification of the server's SPIFFE IDs.
func (a *simulation) accept(v *EndpointVerdict, e Endpoint) {
	if denied := a.client.accepts(e.Security, v.SpiffeIDs); v.Allowed && denied != nil {
		v.Allowed, v.Rule, v.Reason = false, "", denied.Error()
	}
}

// throughIngress queries the zone of an ingress.
func (a *simulation) throughIngress(e Endpoint, ingress ZoneIngress) EndpointVerdict {
	verdict := &IngressVerdict{Zone: ingress.Zone, Name: ingress.Ingress.Name, Healthy: ingress.Healthy, SNI: e.SNI}
	v := EndpointVerdict{Address: e.At.String(), Ingress: verdict}
	if !e.TLS {
		v.Reason = "it is a zone ingress, which forwards by SNI, and the request is plaintext"
		return v
	}
	result, err := a.remote(ingress.Zone, CrossZoneRequest{
		Ingress: ingress.Ingress, Mesh: a.mesh, SNI: e.SNI, SpiffeIDs: a.names.List(), Method: a.call.Method,
		Path: a.call.Path, Headers: a.call.Headers,
	})
	if err != nil {
		verdict.NotQueried = err.Error()
		return v
	}
	verdict.Result, v.Reason = result, result.Reason
	v.Allowed = result.Reason == ""
	for i := range result.Endpoints {
		server := &result.Endpoints[i]
		a.accept(server, e)
		v.Allowed = v.Allowed && server.Allowed
	}
	return v
}

// tally counts the results of a request by endpoint.
type tally struct {
	allowed, denied, unserved, unknown int
	reason                             string // the first reason
}

func (t *tally) add(v *EndpointVerdict) {
	switch verdict := v.Ingress; {
	case v.Allowed:
		t.allowed++
	case v.Egress != nil && v.Egress.Forwarded:
		t.addForwarded(v)
	case verdict != nil && verdict.NotQueried != "":
		t.unknown++
		t.setReason(verdict.NotQueried)
	case verdict != nil && verdict.Result != nil && verdict.Result.Reason == "":
		for i := range verdict.Result.Endpoints {
			t.add(&verdict.Result.Endpoints[i])
		}
	case verdict != nil:
		t.unserved++
		t.setReason(v.Reason)
	default:
		t.denied++
		t.setReason(v.Reason)
	}
}

// addForwarded counts the results in the zones to which an egress forwards.
func (t *tally) addForwarded(v *EndpointVerdict) {
	for i := range v.Egress.Ingresses {
		t.add(&v.Egress.Ingresses[i])
	}
	if len(v.Egress.Ingresses) == 0 {
		t.unserved++
		t.setReason(v.Reason)
	}
}

func (t *tally) setReason(reason string) {
	if t.reason == "" {
		t.reason = reason
	}
}

func (t *tally) verdict() Verdict {
	switch t.allowed + t.denied + t.unserved + t.unknown {
	case t.allowed:
		return Allowed
	case t.unserved:
		return Unserved
	case t.denied, t.denied + t.unserved:
		return Denied
	case t.unknown, t.unknown + t.unserved:
		return Unknown
	}
	return Partly
}

// callServer returns the result of a call at the proxy of an address.
func callServer(world World, at Address, call Call) EndpointVerdict {
	proxy, ok := world.ProxyAt(at.Address, at.Port)
	if !ok {
		return EndpointVerdict{Address: at.String(), Reason: fmt.Sprintf("no proxy is known at %s", at)}
	}
	v, _ := callProxy(world, proxy, at, call)
	return v
}

// callProxy returns the result of a call at one of a proxy's addresses, and the cluster that it leads to.
func callProxy(world World, server state.ProxyKey, at Address, call Call) (v EndpointVerdict, cluster string) {
	v = EndpointVerdict{Address: at.String(), Proxy: server.String(), SpiffeIDs: world.SpiffeIDs(server)}
	config, err := load(world, server)
	if err != nil {
		v.Reason = err.Error()
		return v, ""
	}
	call.Address, call.Port = at.Address, at.Port
	result := config.Inbound(call)
	v.Listener, v.Allowed, v.Rule, v.ShadowRule, v.Reason = result.Listener, result.Allowed, result.Rule,
		result.ShadowRule, result.Reason
	v.Route = result.Route
	if result.Listener == "" {
		v.Reason += exclusionOf(world, server, func(e Exclusion) bool { return e.At == at.String() })
	}
	v.setRejection(world.Rejection(server, at))
	return v, result.Cluster
}

// exclusionOf returns the reason for which a proxy does not get a listener, to follow another text; empty where it gets
// the listener, or nothing asks for one.
func exclusionOf(world World, of state.ProxyKey, matches func(Exclusion) bool) string {
	for _, e := range world.Exclusions(of) {
		if matches(e) {
			return ": " + e.Reason
		}
	}
	return ""
}

func (v *EndpointVerdict) setRejection(message string, serves bool) {
	v.Rejection = message
	if message != "" && !serves {
		v.Allowed, v.Rule, v.Reason = false, "", RejectedText(message)
	}
}

// RejectedText is the reason for which a listener does not serve, by Envoy's message.
func RejectedText(message string) string {
	return "Envoy rejects the listener, and has no earlier version of it: " + message
}

func load(world World, proxy state.ProxyKey) (*Config, error) {
	resources, ok := world.Config(proxy)
	if !ok {
		return nil, fmt.Errorf("proxy %s has no configuration", proxy)
	}
	return Load(resources)
}

// accepts returns an error where the client does not accept a server with these SPIFFE IDs.
func (c *Config) accepts(way Security, server kind.SpiffeIDs) error {
	if !way.TLS {
		return nil
	}
	if slices.ContainsFunc(way.ServerSpiffeIDs, server.Has) {
		return c.verify(way.bundle, server.SpiffeID)
	}
	return fmt.Errorf("the server presents %s, and the client accepts only %s",
		orElse(server.String(), "no certificate"), strings.Join(way.ServerSpiffeIDs, ", "))
}
