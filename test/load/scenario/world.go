package scenario

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/client"
	"weft/internal/diag"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// meshName is the mesh of the measurement; the tool owns it.
const meshName = "load"

// writers is the number of concurrent writes.
const writers = 16

// world has the resources of the measurement.
type world struct {
	*Environment
	Proxies, Services, ProxyGroups, Changes int

	Idle  time.Duration // how long to measure the idle control plane
	Quiet time.Duration // how long no message may arrive before the proxies count as in sync
	Plane *mesh.Plane
}

func (w *world) nodes() []string {
	nodes := make([]string, w.Proxies)
	for i := range nodes {
		nodes[i] = meshName + "." + proxyName(i)
	}
	return nodes
}

func proxyName(i int) string { return fmt.Sprintf("proxy-%d", i) }

// address is unique to a proxy; no proxy connects to it.
func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

// dataplane is proxy i, which serves service i modulo their number and reaches all of them.
func (w *world) dataplane(i int, state kind.InboundState) *resource.Object[kind.Dataplane] {
	service := fmt.Sprintf("service-%d", i%w.Services)
	return kind.Dataplanes.Make(meshName, proxyName(i), kind.Dataplane{Networking: kind.Networking{
		Address: address(i),
		Inbound: []kind.Inbound{{
			Port: 8080, State: state,
			Tags: map[string]string{kind.ServiceTag: service, kind.ProtocolTag: "http"},
		}},
		TransparentProxying: &kind.TransparentProxying{
			RedirectPortInbound: 15006, RedirectPortOutbound: 15001, IPFamilyMode: "IPv4",
			ReachableBackends: w.reachable(i),
		},
	}})
}

// reachable lists every service, and one that does not exist, which differs for each proxy group. The proxies get the
// same configuration, but the control plane can't know that.
func (w *world) reachable(i int) *kind.ReachableBackends {
	if w.ProxyGroups == 0 {
		return nil
	}
	list := &kind.ReachableBackends{}
	for s := range w.Services {
		list.Refs = append(list.Refs, kind.BackendRef{Kind: kind.MeshServices.Name, Name: fmt.Sprintf("service-%d", s)})
	}
	list.Refs = append(list.Refs,
		kind.BackendRef{Kind: kind.MeshServices.Name, Name: fmt.Sprintf("group-%d", i%w.ProxyGroups)})
	return list
}

// register writes the mesh and its Dataplanes, and replaces those of a killed run.
func (w *world) register(ctx context.Context) error {
	if err := w.clear(ctx); err != nil {
		return err
	}
	w.logProgress("writing %d Dataplanes of %d services into the mesh %s", w.Proxies, w.Services, meshName)
	if _, err := w.Plane.Admin.Put(ctx, kind.Meshes.Make("", meshName, kind.Mesh{}), kind.Meshes); err != nil {
		return err
	}
	return w.each(ctx, w.Proxies, func(ctx context.Context, i int) error {
		_, err := w.Plane.Admin.Put(ctx, w.dataplane(i, kind.Ready), kind.Dataplanes)
		return err
	})
}

// each calls do for 0 to n-1, several at once.
func (w *world) each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// clear deletes the mesh and all its resources.
func (w *world) clear(ctx context.Context) error {
	var mesh json.RawMessage
	err := w.Plane.Admin.Get(ctx, client.Path(kind.Meshes, "", meshName), nil, &mesh)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range []resource.Descriptor{kind.Dataplanes, kind.MeshServices} {
		if err := w.deleteAll(ctx, d); err != nil {
			return err
		}
	}
	return w.Plane.Admin.Delete(ctx, kind.Meshes, "", meshName)
}

func (w *world) deleteAll(ctx context.Context, d resource.Descriptor) error {
	items, err := w.Plane.Admin.List(ctx, client.Path(d, meshName, ""), nil)
	if err != nil {
		return err
	}
	return w.each(ctx, len(items), func(ctx context.Context, i int) error {
		var item struct{ Name string }
		if err := json.Unmarshal(items[i], &item); err != nil {
			return err
		}
		if err := w.Plane.Admin.Delete(ctx, d, meshName, item.Name); !isNotFound(err) {
			return err
		}
		return nil
	})
}

func isNotFound(err error) bool {
	var failure *resource.Error
	return errors.As(err, &failure) && failure.Code == resource.NotFound
}

// target is the control plane's data plane server, with a token for every proxy of the mesh. It vouches for no fact, so
// no simulated proxy gets a certificate.
func (w *world) target(ctx context.Context) (target, error) {
	token, err := mesh.ProxyToken(ctx, w.Plane.Admin, meshName, "dataplane,ingress")
	return target{address: w.Plane.DataPlane, roots: w.Plane.Roots, token: token}, err
}

// flip makes change n: one endpoint is removed, and the next change adds it again.
func (w *world) flip(ctx context.Context, n int) error {
	state := kind.NotReady
	if n%2 == 1 {
		state = kind.Ready
	}
	_, err := w.Plane.Admin.Put(ctx, w.dataplane(n/2%w.Proxies, state), kind.Dataplanes)
	return err
}

// changing is the address of the endpoint in change n.
func (w *world) changing(n int) string { return address(n / 2 % w.Proxies) }

func (where ServerAddresses) target() (target, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(where.Roots)) {
		return target{}, errors.New("the floor's roots hold no certificate")
	}
	return target{address: where.Address, roots: roots}, nil
}

func (where ServerAddresses) change(ctx context.Context, _ int) error {
	return sendRequest(ctx, http.MethodPost, where.Diagnostics+"/change")
}

// processStats requests a server's usage.
func processStats(ctx context.Context, diagnostics *client.Client) (p diag.Process, err error) {
	err = diagnostics.Get(ctx, "/debug/process", nil, &p)
	return p, err
}

// collectGarbage makes a server collect its garbage first.
func collectGarbage(ctx context.Context, diagnostics *client.Client) (p diag.Process, err error) {
	err = diagnostics.Post(ctx, "/debug/gc", nil, &p)
	return p, err
}

var web = http.Client{Timeout: time.Minute}

func sendRequest(ctx context.Context, method, url string) error {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	response, err := web.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s returned %s", method, url, response.Status)
	}
	return nil
}
