package envoysim

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// World is what the proxies of a mesh have been given.
type World interface {
	// Config answers the resources of a proxy; false where there is no such proxy.
	Config(graph.ProxyKey) ([]*xds.Resource, bool)
	// SpiffeIDs are those in the proxy's certificate; none of a plain one.
	SpiffeIDs(graph.ProxyKey) kind.SpiffeIDs
	// Instance is the DNS name in the proxy's certificate, which is its own alone.
	Instance(graph.ProxyKey) string
	// At finds the proxy that listens at an address.
	At(address string, port uint32) (graph.ProxyKey, bool)
	// Egress finds the zone egress of this zone that its proxies dial at an address.
	Egress(address string, port uint32) (graph.ProxyKey, bool)
	// IngressAt finds the zone ingress that other zones dial at an address.
	IngressAt(address string, port uint32) (ZoneIngress, bool)
}

// ZoneIngress is a zone ingress of another zone.
type ZoneIngress struct {
	Zone    string
	Ingress graph.ProxyKey // without a mesh: a ZoneIngress
	Healthy bool
}

// RemoteZones has another zone say what becomes of a request that arrives at one of its ingresses.
type RemoteZones func(zone string, crossing CrossZoneRequest) (*IngressResult, error)

// Request is a question.
type Request struct {
	From graph.ProxyKey
	// To is a service, a virtual IP or an address, each with a port or without: "backend", "backend:80",
	// "241.0.0.1", "127.0.0.1:10001".
	To     string
	Method string // default GET
	Path   string // default /
}

// Verdict is what becomes of a request.
type Verdict string

const (
	// Allowed: every endpoint takes it.
	Allowed Verdict = "allowed"
	// Denied: no endpoint takes it.
	Denied Verdict = "denied"
	// Partly: it depends on the endpoint that the balancer picks.
	Partly Verdict = "partly"
	// Unserved: it gets to no endpoint.
	Unserved Verdict = "unserved"
	// Forwarded: it leaves the mesh unchanged, and what becomes of it there is not known.
	Forwarded Verdict = "forwarded"
	// Unknown: it leaves for another zone, which can't be asked.
	Unknown Verdict = "unknown"
)

// Explanation is what a request does, hop by hop. What comes after the hop at which it ends is empty.
type Explanation struct {
	From string `json:"from"`
	kind.SpiffeIDs
	To          string            `json:"to"`
	Method      string            `json:"method,omitempty"` // empty where no proxy reads requests
	Path        string            `json:"path,omitempty"`
	Address     string            `json:"address,omitempty"` // what the application dials
	Listener    string            `json:"listener,omitempty"`
	Captured    bool              `json:"captured,omitempty"` // only redirected connections get to the listener
	Route       string            `json:"route,omitempty"`
	Destination string            `json:"destination,omitempty"`
	MutualTLS   bool              `json:"mutualTLS"`
	ServerNames []string          `json:"serverNames,omitempty"`
	Retries     uint32            `json:"retries,omitempty"`
	RetryOn     string            `json:"retryOn,omitempty"`
	Endpoints   []EndpointVerdict `json:"endpoints,omitempty"`
	Verdict     Verdict           `json:"verdict"`
	Reason      string            `json:"reason,omitempty"`
}

// EndpointVerdict is what one endpoint does with the request.
type EndpointVerdict struct {
	// Locality is the part of the destination that the endpoint belongs to, where it has parts: the client's own zone,
	// and the others. Fallback says that it is dialled only while nobody of an earlier part is up.
	Locality string `json:"locality,omitempty"`
	Fallback bool   `json:"fallback,omitempty"`
	Address  string `json:"address"`
	Proxy    string `json:"proxy,omitempty"`
	kind.SpiffeIDs
	Listener string `json:"listener,omitempty"`
	Allowed  bool   `json:"allowed"`
	// Rule is the rule of the policy that decided; ShadowRule one that would deny and does not yet.
	Rule       string `json:"rule,omitempty"`
	ShadowRule string `json:"shadowRule,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Ingress is set where the endpoint is a zone ingress of another zone. What becomes of the request there
	// stands in it, and Allowed says that every server there takes it.
	Ingress *IngressVerdict `json:"ingress,omitempty"`
	// Egress is set where the endpoint is a zone egress of the client's zone. Allowed says that it lets the request
	// out, or that every server to which it passes it on takes it.
	Egress *EgressVerdict `json:"egress,omitempty"`
}

// IngressVerdict is what becomes of a request that goes to another zone by one of its ingresses.
type IngressVerdict struct {
	Zone    string `json:"zone"`
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"` // as its zone says
	SNI     string `json:"sni"`     // by which the ingress knows the destination
	// Result is absent where the zone could not be asked; Unasked says why.
	Result     *IngressResult `json:"result,omitempty"`
	NotQueried string         `json:"notQueried,omitempty"`
}

// Explain answers what a request does, and asks beyond where it goes on in another zone. It is an error when
// the question can't be asked: the proxy is unknown, or To names nothing that it knows.
func Explain(world World, request Request, beyond RemoteZones) (*Explanation, error) {
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
		return nil, fmt.Errorf("%s reaches nothing at %q: %w", request.From, request.To, err)
	}
	call := Call{Address: address.Address, Port: address.Port, Method: request.Method, Path: request.Path}
	way := client.Outbound(call)
	e := explanation(world.SpiffeIDs(request.From), request, address, way)
	switch {
	case way.Error != "":
		e.Verdict, e.Reason = Unserved, way.Error
	case way.Passed:
		e.Verdict, e.Reason = Forwarded, "no service of the mesh has this address"
	default:
		(&asking{world, beyond, request.From.Mesh, e.SpiffeIDs, world.Instance(request.From), client, call}).ask(e, way.Endpoints)
	}
	return e, nil
}

func explanation(names kind.SpiffeIDs, request Request, address Address, way OutboundResult) *Explanation {
	e := &Explanation{
		From: request.From.String(), SpiffeIDs: names, To: request.To, Address: address.String(),
		Listener: way.Listener, Captured: way.Captured, Route: way.Route, Destination: way.Cluster,
		MutualTLS: way.TLS, ServerNames: way.ServerNames, Retries: way.Retries, RetryOn: way.RetryOn,
	}
	if way.Route != "" {
		e.Method, e.Path = orElse(request.Method, "GET"), orElse(request.Path, "/")
	}
	return e
}

// asking is a request on its way to the endpoints of its destination.
type asking struct {
	world    World
	beyond   RemoteZones
	mesh     string
	names    kind.SpiffeIDs // of the client, and instance its own name
	instance string
	client   *Config
	call     Call
}

// ask puts the request to every endpoint and sums up. Those that are dialled only while others are down have
// their answers, and no part in the sum.
func (a *asking) ask(e *Explanation, all []Endpoint) {
	var sum tally
	for _, endpoint := range all {
		v := a.endpoint(endpoint)
		v.Locality, v.Fallback = endpoint.Locality, endpoint.Fallback
		if !endpoint.Fallback {
			sum.add(&v)
		}
		e.Endpoints = append(e.Endpoints, v)
	}
	e.Verdict, e.Reason = sum.verdict(), sum.reason
}

func (a *asking) endpoint(e Endpoint) EndpointVerdict {
	call := a.call
	if call.TLS = e.TLS; e.TLS {
		call.PeerURIs, call.PeerDNS = a.names.List(), a.instance
	}
	if egress, ok := a.world.Egress(e.At.Address, e.At.Port); ok {
		return a.throughEgress(e, egress, call)
	}
	if _, here := a.world.At(e.At.Address, e.At.Port); !here {
		if door, ok := a.world.IngressAt(e.At.Address, e.At.Port); ok {
			return a.throughDoor(e, door)
		}
	}
	v := askServer(a.world, e.At, call)
	a.accept(&v, e)
	return v
}

// accept has the client look at the server's name.
func (a *asking) accept(v *EndpointVerdict, e Endpoint) {
	if refusal := a.client.accepts(e.Security, v.SpiffeIDs); v.Allowed && refusal != nil {
		v.Allowed, v.Rule, v.Reason = false, "", refusal.Error()
	}
}

// throughDoor asks the zone of an ingress.
func (a *asking) throughDoor(e Endpoint, door ZoneIngress) EndpointVerdict {
	there := &IngressVerdict{Zone: door.Zone, Name: door.Ingress.Name, Healthy: door.Healthy, SNI: e.SNI}
	v := EndpointVerdict{Address: e.At.String(), Ingress: there}
	if !e.TLS {
		v.Reason = "it is a zone ingress, which tells services apart by the server name of TLS, and the request is plain"
		return v
	}
	arrival, err := a.beyond(door.Zone, CrossZoneRequest{
		Ingress: door.Ingress, Mesh: a.mesh, SNI: e.SNI, SpiffeIDs: a.names.List(), Method: a.call.Method, Path: a.call.Path,
	})
	if err != nil {
		there.NotQueried = err.Error()
		return v
	}
	there.Result, v.Reason = arrival, arrival.Reason
	v.Allowed = arrival.Reason == ""
	for i := range arrival.Endpoints {
		server := &arrival.Endpoints[i]
		a.accept(server, e)
		v.Allowed = v.Allowed && server.Allowed
	}
	return v
}

// tally counts what endpoints do with a request.
type tally struct {
	allowed, refused, unserved, unknown int
	reason                              string // the first that is told
}

func (t *tally) add(v *EndpointVerdict) {
	switch there := v.Ingress; {
	case v.Allowed:
		t.allowed++
	case v.Egress != nil && v.Egress.Forwarded:
		t.addPassed(v)
	case there != nil && there.NotQueried != "":
		t.unknown++
		t.tell(there.NotQueried)
	case there != nil && there.Result != nil && there.Result.Reason == "":
		for i := range there.Result.Endpoints {
			t.add(&there.Result.Endpoints[i])
		}
	case there != nil:
		t.unserved++
		t.tell(v.Reason)
	default:
		t.refused++
		t.tell(v.Reason)
	}
}

// addPassed counts what other zones do with what an egress passes on.
func (t *tally) addPassed(v *EndpointVerdict) {
	for i := range v.Egress.Ingresses {
		t.add(&v.Egress.Ingresses[i])
	}
	if len(v.Egress.Ingresses) == 0 {
		t.unserved++
		t.tell(v.Reason)
	}
}

func (t *tally) tell(reason string) {
	if t.reason == "" {
		t.reason = reason
	}
}

func (t *tally) verdict() Verdict {
	switch t.allowed + t.refused + t.unserved + t.unknown {
	case t.allowed:
		return Allowed
	case t.unserved:
		return Unserved
	case t.refused, t.refused + t.unserved:
		return Denied
	case t.unknown, t.unknown + t.unserved:
		return Unknown
	}
	return Partly
}

// askServer answers what the proxy at an address does with a call that arrives there.
func askServer(world World, at Address, call Call) EndpointVerdict {
	proxy, ok := world.At(at.Address, at.Port)
	if !ok {
		return EndpointVerdict{Address: at.String(), Reason: fmt.Sprintf("no proxy is known at %s", at)}
	}
	v, _ := askProxy(world, proxy, at, call)
	return v
}

// askProxy answers what a proxy does with a call that arrives at one of its addresses, and the cluster to which that
// leads.
func askProxy(world World, proxy graph.ProxyKey, at Address, call Call) (v EndpointVerdict, cluster string) {
	v = EndpointVerdict{Address: at.String(), Proxy: proxy.String(), SpiffeIDs: world.SpiffeIDs(proxy)}
	server, err := load(world, proxy)
	if err != nil {
		v.Reason = err.Error()
		return v, ""
	}
	call.Address, call.Port = at.Address, at.Port
	result := server.Inbound(call)
	v.Listener, v.Allowed, v.Rule, v.ShadowRule, v.Reason = result.Listener, result.Allowed, result.Rule, result.ShadowRule, result.Reason
	return v, result.Cluster
}

func load(world World, proxy graph.ProxyKey) (*Config, error) {
	resources, ok := world.Config(proxy)
	if !ok {
		return nil, fmt.Errorf("proxy %s has no configuration", proxy)
	}
	return Load(resources)
}

// accepts says why the client does not take a server of that name; nil where it does.
func (c *Config) accepts(way Security, server kind.SpiffeIDs) error {
	if !way.TLS {
		return nil
	}
	if slices.ContainsFunc(way.ServerNames, server.Has) {
		return c.believes(way.bundle, server.SpiffeID)
	}
	return fmt.Errorf("the server is %s, and the client takes only %s",
		orElse(server.String(), "plain"), strings.Join(way.ServerNames, ", "))
}
