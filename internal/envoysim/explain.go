package envoysim

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/xds"
)

// World is what the proxies of a mesh have been given.
type World interface {
	// Config answers the resources of a proxy; false where there is no such proxy.
	Config(graph.ProxyKey) ([]*xds.Resource, bool)
	// SpiffeID is the proxy's name; empty for a plain one.
	SpiffeID(graph.ProxyKey) string
	// At finds the proxy that listens at an address.
	At(address string, port uint32) (graph.ProxyKey, bool)
}

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
	// Refused: no endpoint takes it.
	Refused Verdict = "refused"
	// Partly: it depends on the endpoint that the balancer picks.
	Partly Verdict = "partly"
	// Unserved: it gets to no endpoint.
	Unserved Verdict = "unserved"
	// Passed: it leaves the mesh unchanged, and what becomes of it there is not known.
	Passed Verdict = "passed"
)

// Explanation is what a request does, hop by hop. What comes after the hop at which it ends is empty.
type Explanation struct {
	From        string            `json:"from"`
	SpiffeID    string            `json:"spiffeID,omitempty"`
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
	Address  string `json:"address"`
	Proxy    string `json:"proxy,omitempty"`
	SpiffeID string `json:"spiffeID,omitempty"`
	Listener string `json:"listener,omitempty"`
	Allowed  bool   `json:"allowed"`
	// Rule is the rule of the policy that decided; ShadowRule one that would deny and does not yet.
	Rule       string `json:"rule,omitempty"`
	ShadowRule string `json:"shadowRule,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Explain answers what a request does. It is an error when the question can't be asked: the proxy is
// unknown, or To names nothing that it knows.
func Explain(world World, request Request) (*Explanation, error) {
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
	e := explanation(world.SpiffeID(request.From), request, address, way)
	switch {
	case way.Error != "":
		e.Verdict, e.Reason = Unserved, way.Error
	case way.Passed:
		e.Verdict, e.Reason = Passed, "no service of the mesh has this address"
	default:
		e.ask(world, client, way, call)
	}
	return e, nil
}

func explanation(id string, request Request, address Address, way OutboundResult) *Explanation {
	e := &Explanation{
		From: request.From.String(), SpiffeID: id, To: request.To, Address: address.String(),
		Listener: way.Listener, Captured: way.Captured, Route: way.Route, Destination: way.Cluster,
		MutualTLS: way.TLS, ServerNames: way.ServerNames, Retries: way.Retries, RetryOn: way.RetryOn,
	}
	if way.Route != "" {
		e.Method, e.Path = orElse(request.Method, "GET"), orElse(request.Path, "/")
	}
	return e
}

// ask puts the request to every endpoint and sums up.
func (e *Explanation) ask(world World, client *Config, way OutboundResult, call Call) {
	var allowed int
	for _, endpoint := range way.Endpoints {
		v := askEndpoint(world, e.SpiffeID, client, way, endpoint, call)
		if v.Allowed {
			allowed++
		} else if e.Reason == "" {
			e.Reason = v.Reason
		}
		e.Endpoints = append(e.Endpoints, v)
	}
	switch allowed {
	case 0:
		e.Verdict = Refused
	case len(e.Endpoints):
		e.Verdict = Allowed
	default:
		e.Verdict = Partly
	}
}

func askEndpoint(world World, id string, client *Config, way OutboundResult, endpoint Address, call Call) EndpointVerdict {
	v := EndpointVerdict{Address: endpoint.String()}
	proxy, ok := world.At(endpoint.Address, endpoint.Port)
	if !ok {
		v.Reason = fmt.Sprintf("no proxy is known at %s", endpoint)
		return v
	}
	v.Proxy, v.SpiffeID = proxy.String(), world.SpiffeID(proxy)
	server, err := load(world, proxy)
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	call.Address, call.Port, call.TLS = endpoint.Address, endpoint.Port, way.TLS
	if way.TLS {
		call.PeerURIs = []string{id}
	}
	result := server.Inbound(call)
	v.Listener, v.Allowed, v.Rule, v.ShadowRule, v.Reason = result.Listener, result.Allowed, result.Rule, result.ShadowRule, result.Reason
	if refusal := client.accepts(way, v.SpiffeID); v.Allowed && refusal != nil {
		v.Allowed, v.Rule, v.Reason = false, "", refusal.Error()
	}
	return v
}

func load(world World, proxy graph.ProxyKey) (*Config, error) {
	resources, ok := world.Config(proxy)
	if !ok {
		return nil, fmt.Errorf("proxy %s has no configuration", proxy)
	}
	return Load(resources)
}

// accepts says why the client does not take a server of that name; nil where it does.
func (c *Config) accepts(way OutboundResult, id string) error {
	if !way.TLS {
		return nil
	}
	if slices.Contains(way.ServerNames, id) {
		return c.believes(way.bundle, id)
	}
	return fmt.Errorf("the server is %s, and the client takes only %s",
		orElse(id, "plain"), strings.Join(way.ServerNames, ", "))
}
