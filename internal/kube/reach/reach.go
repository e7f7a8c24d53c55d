// Package reach connects a user's machine to the HTTP API of a control plane in a Kubernetes cluster, with the
// kubeconfig of the user. The API server forwards the connection to a Pod, as for kubectl port-forward.
package reach

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"weft/internal/kube/api"
)

// Scheme is the prefix of the address of a control plane in a cluster.
const Scheme = "kubernetes:"

const (
	// service is the Service of the control planes, in the namespace of an address or else this one.
	service          = "kuma-control-plane"
	defaultNamespace = "kuma-system"
	// apiPort is the port of the Service for the HTTP API.
	apiPort = 5681
	// adminSecret has the token of the first administrator.
	adminSecret = "admin-user-token"
)

// Address is the place of a control plane: a context of the kubeconfig, and the namespace there.
type Address struct {
	Context   string // empty: the current one
	Namespace string
}

// Parse returns the place that an address names: kubernetes:[CONTEXT][/NAMESPACE]. It is false for another address. A
// context may have slashes, as those of cloud providers have: the namespace follows the last one.
func Parse(address string) (Address, bool) {
	rest, ok := strings.CutPrefix(address, Scheme)
	if !ok {
		return Address{}, false
	}
	a := Address{Context: rest, Namespace: defaultNamespace}
	if at := strings.LastIndexByte(rest, '/'); at >= 0 {
		a.Context, a.Namespace = rest[:at], rest[at+1:]
	}
	return a, true
}

// ControlPlane is the HTTP API of a control plane, as it is reached from this machine.
type ControlPlane struct {
	URL string // on the loopback interface
	api *api.Client
	Address
	where string
}

// Open forwards a port of the loopback interface to a control plane, until ctx ends.
func Open(ctx context.Context, address Address) (*ControlPlane, error) {
	server, err := api.FindContext(address.Context)
	if err != nil {
		return nil, err
	}
	where := fmt.Sprintf("namespace %s of the cluster %s (%s)", address.Namespace, server.Config.Host, server.Source)
	client, err := api.New(server.Config)
	if err != nil {
		return nil, err
	}
	plane := &ControlPlane{api: client, Address: address, where: where}
	pod, port, err := plane.pod(ctx)
	if err != nil {
		return nil, err
	}
	local, err := forward(ctx, server.Config, address.Namespace, pod, port)
	if err != nil {
		return nil, fmt.Errorf("the connection to Pod %s, %s: %w", pod, where, err)
	}
	plane.URL = fmt.Sprintf("http://127.0.0.1:%d", local)
	return plane, nil
}

// pod returns a Pod of the control plane that is Ready, and its port of the HTTP API.
func (p *ControlPlane) pod(ctx context.Context) (name string, port int, err error) {
	var found core.Service
	err = p.api.Get(ctx, p.path("services/"+service), nil, &found)
	switch {
	case apierrors.IsNotFound(err):
		return "", 0, fmt.Errorf("there is no Service %s in %s; install a control plane with `weft install "+
			"control-plane`, or name its namespace: %sCONTEXT/NAMESPACE", service, p.where, Scheme)
	case err != nil:
		return "", 0, fmt.Errorf("Service %s, %s: %w", service, p.where, err)
	}
	var pods core.PodList
	selector := labels.SelectorFromSet(found.Spec.Selector).String()
	if err := p.api.Get(ctx, p.path("pods"), api.Options{"labelSelector": selector}, &pods); err != nil {
		return "", 0, fmt.Errorf("the Pods of Service %s, %s: %w", service, p.where, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; ready(pod) {
			return pod.Name, targetPort(&found, pod), nil
		}
	}
	return "", 0, fmt.Errorf("of %d Pods of Service %s none is ready in %s; `kubectl describe pods -n %s -l %s` has "+
		"the reason", len(pods.Items), service, p.where, p.Namespace, selector)
}

func (p *ControlPlane) path(of string) string { return "/api/v1/namespaces/" + p.Namespace + "/" + of }

// AdminToken returns the token of the administrator that the control plane made when it started first. Only users who
// may read Secrets in its namespace get it.
func (p *ControlPlane) AdminToken(ctx context.Context) (string, error) {
	var secret core.Secret
	if err := p.api.Get(ctx, p.path("secrets/"+adminSecret), nil, &secret); err != nil {
		return "", fmt.Errorf("Secret %s, %s: %w; without it, add the control plane with a token of your own: `weft "+
			"config control-planes add --name NAME --address %s --token-file FILE`", adminSecret, p.where, err, Scheme)
	}
	return strings.TrimSpace(string(secret.Data["value"])), nil
}

func ready(pod *core.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// targetPort returns the port of a Pod to which the Service sends requests for the HTTP API.
func targetPort(of *core.Service, pod *core.Pod) int {
	for _, port := range of.Spec.Ports {
		switch {
		case port.Port != apiPort:
		case port.TargetPort.Type == intstr.Int:
			return port.TargetPort.IntValue()
		default:
			for _, c := range pod.Spec.Containers {
				for _, named := range c.Ports {
					if named.Name == port.TargetPort.StrVal {
						return int(named.ContainerPort)
					}
				}
			}
		}
	}
	return apiPort
}

// forward returns a port of the loopback interface whose connections end at a port of a Pod, until ctx ends.
func forward(ctx context.Context, config *rest.Config, namespace, pod string, port int) (uint16, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return 0, err
	}
	target := base.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, err
	}
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(target, config)
	if err != nil {
		return 0, err
	}
	// API servers before 1.31 and some proxies in front of others have SPDY alone.
	dialer := portforward.NewFallbackDialer(overWebSocket,
		spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	isReady, failed := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)},
		ctx.Done(), isReady, io.Discard, io.Discard)
	if err != nil {
		return 0, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-isReady:
	case err := <-failed:
		return 0, err
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, err
	}
	return ports[0].Local, nil
}
