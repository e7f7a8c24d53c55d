// Package shop has the control plane and the applications of the tests and the demo of a Kubernetes node: a server, a
// client that it allows, and one that it denies.
package shop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"weft/internal/demo"
	"weft/internal/testwait"
	"weft/internal/wait"
	"weft/test/kubernetes/node"
)

// Tag is the tag of the images that `tools/images test` writes.
const Tag = "test"

// folder is the folder of these images.
func folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "bin", "images")
}

// Images returns the archives of the images of the control plane, of sidecars, and of the CNI plugin.
func Images() []string {
	var archives []string
	for _, name := range []string{"weft", "weft-dp", "weft-cni"} {
		archives = append(archives, filepath.Join(folder(), name+"-"+runtime.GOARCH+".tar"))
	}
	return archives
}

// Weft is the path of weft.
func Weft() string { return filepath.Join(folder(), runtime.GOARCH, "weft") }

// Install is the command that prints the objects of a control plane with the images of the tests, and with values of
// the chart, NAME=VALUE.
func Install(values ...string) []string {
	command := []string{"install", "control-plane", "--set", "global.image.tag=" + Tag}
	for _, v := range values {
		command = append(command, "--set", v)
	}
	return command
}

// Shop is a namespace with a server "web".
type Shop struct {
	Node      *node.Node
	Namespace string
	Client    string // the address of the client's Pod
}

// Web is the URL of the server, as Pods of its namespace have it.
const Web = "http://web"

// RunWeft runs weft with the node's kubeconfig, and returns its output.
func RunWeft(ctx context.Context, n *node.Node, args ...string) (string, error) {
	return RunWeftBy(ctx, n.Kubeconfig(), args...)
}

// RunWeftBy runs weft with a kubeconfig, and returns its output.
func RunWeftBy(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	out, _, err := runWeft(ctx, kubeconfig, args)
	return out, err
}

// Warnings runs weft with the node's kubeconfig, and returns what it writes to standard error.
func Warnings(ctx context.Context, n *node.Node, args ...string) (string, error) {
	_, warnings, err := runWeft(ctx, n.Kubeconfig(), args)
	return warnings, err
}

func runWeft(ctx context.Context, kubeconfig string, args []string) (out, warnings string, err error) {
	command := exec.CommandContext(ctx, Weft(), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err = command.Run(); err != nil {
		err = fmt.Errorf("weft %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), stderr.String(), err
}

// Small is the value of the chart by which several replicas and their servers fit on a machine with 2 CPUs.
const Small = "controlPlane.resources.requests.cpu=50m"

// ApplyControlPlane applies what `weft install control-plane` prints, with values of the chart, NAME=VALUE.
func ApplyControlPlane(ctx context.Context, n *node.Node, values ...string) error {
	objects, err := RunWeft(ctx, n, Install(values...)...)
	if err != nil {
		return err
	}
	return n.Apply(ctx, objects)
}

// InstallControlPlane applies the objects of a control plane, and returns when it is available and has made the mesh
// default.
func InstallControlPlane(ctx context.Context, n *node.Node, values ...string) error {
	if err := ApplyControlPlane(ctx, n, values...); err != nil {
		return err
	}
	if err := n.Wait(ctx, "deployment/kuma-control-plane", "condition=Available", "-n", "kuma-system"); err != nil {
		return err
	}
	return n.Wait(ctx, "mesh/default", "create")
}

// Response is the response to a request of a Pod.
type Response struct {
	Status int
	Body   []byte
	Error  string
}

// Err returns an error unless the server has responded with 200.
func (r Response) Err() error {
	switch {
	case r.Error != "":
		return errors.New(r.Error)
	case r.Status != http.StatusOK:
		return fmt.Errorf("%d %s", r.Status, strings.TrimSpace(string(r.Body)))
	}
	return nil
}

// Get sends a request from a Pod, by its address.
func Get(ctx context.Context, pod, to string) (Response, error) {
	return relay(ctx, pod, url.Values{"url": {to}})
}

// WithSNI is [Get] on a new connection with TLS of the application, with an SNI, and by any certificate.
func WithSNI(ctx context.Context, pod, to, sni string) (Response, error) {
	return relay(ctx, pod, url.Values{"url": {to}, "sni": {sni}})
}

func relay(ctx context.Context, pod string, query url.Values) (Response, error) {
	var result Response
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod+":8080/?"+query.Encode(), nil)
	if err != nil {
		return result, err
	}
	relayed, err := http.DefaultClient.Do(request)
	if err != nil {
		return result, err
	}
	defer relayed.Body.Close()
	body, err := io.ReadAll(relayed.Body)
	if err == nil {
		err = json.Unmarshal(body, &result)
	}
	return result, err
}

// Call sends a request from the client to the server, and returns the server's instance and the client that its proxy
// has verified.
func (s *Shop) Call(ctx context.Context) (demo.Response, error) {
	var of demo.Response
	got, err := Get(ctx, s.Client, Web)
	if err == nil {
		err = got.Err()
	}
	if err == nil {
		err = json.Unmarshal(got.Body, &of)
	}
	return of, err
}

// ID is the SPIFFE ID of a ServiceAccount of the namespace.
func (s *Shop) ID(account string) string {
	return "spiffe://default.default.mesh.local/ns/" + s.Namespace + "/sa/" + account
}

// CheckVerified sends a request, and returns an error unless the server's proxy has verified the client.
func (s *Shop) CheckVerified(ctx context.Context) error {
	of, err := s.Call(ctx)
	if err != nil {
		return err
	}
	return s.verified(of)
}

// verified returns an error unless the server's proxy has verified the client.
func (s *Shop) verified(of demo.Response) error {
	if of.Client != s.ID("client") {
		return fmt.Errorf("the proxy of %s sees the client %q, want %s", of.Instance, of.Client, s.ID("client"))
	}
	return nil
}

// IgnoredLabels is the value of the chart with the label that Argo Rollouts adds to selectors, which does not count
// before a promotion.
const IgnoredLabels = "controlPlane.envVars.KUMA_RUNTIME_KUBERNETES_INJECTOR_IGNORED_SERVICE_SELECTOR_LABELS=" +
	"rollouts-pod-template-hash"

// NewVersion are the arguments of `kubectl patch rollout` that give the Pods of a Rollout a new version.
func NewVersion(version string) []string {
	return []string{"--type", "merge", "-p",
		fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"version":%q}}}}}`, version)}
}

// Promote gives the Pods of the Rollout web a new version, and returns when Argo Rollouts has promoted them.
func (s *Shop) Promote(ctx context.Context, version string) error {
	patch := append([]string{"patch", "rollout", "web", "-n", s.Namespace}, NewVersion(version)...)
	if _, err := s.Node.Kubectl(ctx, "", patch...); err != nil {
		return err
	}
	generation, err := s.Node.Kubectl(ctx, "", "get", "rollout", "web", "-n", s.Namespace, "-o",
		"jsonpath={.metadata.generation}")
	if err != nil {
		return err
	}
	for _, condition := range []string{"{.status.observedGeneration}=" + generation, "{.status.phase}=Healthy"} {
		if err := s.Node.Wait(ctx, "rollout/web", "jsonpath="+condition, "-n", s.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// Eventually tries until it succeeds, for [testwait.Timeout] at most. The response to an attempt is the event that is
// awaited. The error is that of the last attempt which the end of that time has not interrupted.
func Eventually(ctx context.Context, what string, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, testwait.Timeout)
	defer cancel()
	var last error
	err := wait.Until(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		err := attempt(ctx)
		if ctx.Err() == nil {
			last = err
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, cmp.Or(last, err))
	}
	return nil
}
