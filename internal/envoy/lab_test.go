package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// lab is one Envoy, as the proxy of a client, with destinations whose confs differ. Their servers are plaintext.
type lab struct {
	t         *testing.T
	resources []*xds.Resource
	admin     uint32
}

func newLab(t *testing.T) *lab { return &lab{t: t, admin: freePort(t)} }

// start runs the Envoy with all destinations.
func (l *lab) start() {
	l.t.Helper()
	bootstrap := static(l.t, l.resources)
	bootstrap.Admin = &bootstrapv3.Admin{Address: socketAddress("127.0.0.1", l.admin)}
	runEnvoy(l.t, writeBootstrap(l.t, bootstrap))
}

// labDestination is a destination of a [lab].
type labDestination struct {
	lab     *lab
	cluster string // its name
	address string // at which the client's application reaches it
}

// destination adds a destination before the start. Its name is a number, so that a name in a test may be a sentence.
func (l *lab) destination(protocol kind.Protocol, e service.Effective, servers ...service.Endpoint) *labDestination {
	l.t.Helper()
	d := &service.Destination{
		Key: service.DestinationKey{Mesh: "default", Zone: "east", Service: fmt.Sprint("s", len(l.resources)),
			Port: 80},
		Protocol: protocol, Effective: e,
	}
	return l.add(d, Assignment(&service.Endpoints{Destination: d.Key, Endpoints: servers}))
}

// add adds a destination with its assignments.
func (l *lab) add(d *service.Destination, assignments ...*xds.Resource) *labDestination {
	l.t.Helper()
	return l.listening(d, append(Clusters(d, false, identity.Source{}), assignments...)...)
}

// listening adds a listener with a route to the cluster of a destination, which is one of the resources.
func (l *lab) listening(d *service.Destination, resources ...*xds.Resource) *labDestination {
	l.t.Helper()
	l.resources = append(l.resources, resources...)
	return l.outboundBy(service.RouteTo(d).WithConfs(d.Effective))
}

// outboundBy adds a listener that follows a route.
func (l *lab) outboundBy(to *service.Route) *labDestination {
	l.t.Helper()
	outbound := &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(l.t), Destination: to.Destination,
		Protocol: to.Protocol}
	l.resources = append(l.resources, Route(to), ExplicitListener(outbound, to))
	return &labDestination{l, to.Destination.String(), fmt.Sprintf("127.0.0.1:%d", outbound.Port)}
}

// inbound adds an inbound with effective confs in front of an application.
func (l *lab) inbound(protocol kind.Protocol, confs string, application service.Endpoint) *labDestination {
	l.t.Helper()
	var n nouns
	unmarshal(l.t, "inbound: {confs: {"+confs+"}}", &n)
	in := n.Inbound
	in.Address, in.Port, in.Protocol, in.Bind = "127.0.0.1", freePort(l.t), protocol, true
	in.Name, in.ServiceAddress, in.ServicePort = fmt.Sprint(in.Port), application.Address, application.Port
	l.resources = append(l.resources, inboundOf(in, false)...)
	return &labDestination{l, InboundName(in.Address, in.Port), fmt.Sprintf("127.0.0.1:%d", in.Port)}
}

// server starts an application of HTTP/1.1 and HTTP/2 without TLS.
func (l *lab) server(handler http.HandlerFunc) service.Endpoint {
	l.t.Helper()
	return l.serverOn(handler, func(listener net.Listener) net.Listener { return listener })
}

// serverOn starts a server as [lab.server] does, on a changed listener.
func (l *lab) serverOn(handler http.HandlerFunc, change func(net.Listener) net.Listener) service.Endpoint {
	l.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Listener = change(server.Listener)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	l.t.Cleanup(server.CloseClientConnections)
	return endpointAt(server.Listener.Addr())
}

func endpointAt(address net.Addr) service.Endpoint {
	return service.Endpoint{Address: "127.0.0.1", Port: uint32(address.(*net.TCPAddr).Port)}
}

// responding responds with a status.
func responding(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// stalling responds when the test ends, and reports each request.
func (l *lab) stalling() (http.HandlerFunc, chan struct{}) {
	end, begun := make(chan struct{}), make(chan struct{}, 100)
	l.t.Cleanup(func() { close(end) })
	return func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}, begun
}

// send sends a GET request on a connection of its own, and returns the response; nil where there is none.
func (d *labDestination) send(header ...string) *http.Response { return d.sendTo("/", header...) }

// sendTo sends a request of a path.
func (d *labDestination) sendTo(path string, header ...string) *http.Response {
	request, err := http.NewRequestWithContext(d.lab.t.Context(), http.MethodGet, "http://"+d.address+path, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	response.Header.Set("test-body", string(body))
	return response
}

// stat returns the sum of the statistics of the destination's clusters whose names end with a pattern.
func (d *labDestination) stat(name string) int {
	d.lab.t.Helper()
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/stats", d.lab.admin))
	if err != nil {
		d.lab.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		d.lab.t.Fatal(err)
	}
	sum := 0
	of := regexp.MustCompile(`(?m)^cluster\.` + regexp.QuoteMeta(d.cluster) + `(?:_[a-z]+)?\.` + name + `: (\d+)$`)
	for _, found := range of.FindAllStringSubmatch(string(body), -1) {
		n, _ := strconv.Atoi(found[1])
		sum += n
	}
	return sum
}

// until sends requests until a condition of the response holds.
func (d *labDestination) until(t *testing.T, what string, holds func(*http.Response) bool) {
	t.Helper()
	testwait.UntilTrue(t, what, func() bool {
		response := d.send()
		return response != nil && holds(response)
	})
}

// effectiveOf returns confs by their written form.
func effectiveOf(t *testing.T, text string) service.Effective {
	t.Helper()
	var n nouns
	unmarshal(t, "destination: {effective: {"+text+"}}", &n)
	return n.Destination.Effective
}

// inboundOf returns the resources of an inbound that shares no parts.
func inboundOf(l *proxy.InboundListener, secured bool) []*xds.Resource {
	return NewInboundParts(l.Settings(secured)).Inbound(l)
}
