// Command demo shows a mesh on a Kubernetes node: from nothing to Pods that talk mTLS, a denied one and why, a rollout
// and a promotion under traffic. Every command is printed as it runs, every claim is checked, and nothing stays behind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weft/internal/demo"
	"weft/internal/demo/console"
	"weft/test/kubernetes/node"
	"weft/test/kubernetes/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	code, err := 0, error(nil)
	if node.IsIsolated() {
		err = run(ctx)
	} else {
		code, err = node.Isolate(context.WithoutCancel(ctx))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// scene is a running demo.
type scene struct {
	console console.Console
	node    *node.Node
	shop    *shop.Shop
	results []console.Result
}

const namespace = "shop"

// run runs the demo, and returns an error unless every check passed.
func run(ctx context.Context) error {
	s := &scene{console: console.Console{Out: os.Stdout}}
	began := time.Now()
	err := s.play(ctx)
	s.console.Step("The end: programs, Pods, mounts, interfaces and control groups are removed")
	if s.node != nil {
		s.node.Stop()
	}
	if err != nil {
		return err
	}
	s.console.Results(s.results)
	s.console.Print("The demo took %d seconds.", int(time.Since(began).Seconds()))
	for _, r := range s.results {
		if r.Err != nil {
			return demo.ErrChecks
		}
	}
	return nil
}

func (s *scene) play(ctx context.Context) error {
	if err := s.bringUp(ctx); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"a request from Pod to Pod is mutual TLS, with SPIFFE IDs of ServiceAccounts", s.identified},
		{"a caller that no permission allows is denied", s.denied},
		{"a restarted Deployment loses no request", s.restarted},
		{"a blue/green promotion loses no request", s.promoted},
	} {
		s.console.Step("Check: %s", c.name)
		detail, err := c.run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := console.Result{Name: c.name, Detail: detail, Err: err}
		s.console.Note("%s", r.Text())
		s.results = append(s.results, r)
	}
	return nil
}

// bringUp starts the node, the control plane and the Pods.
func (s *scene) bringUp(ctx context.Context) (err error) {
	began := time.Now()
	s.console.Step("A Kubernetes node: etcd, API server, controllers, scheduler, containerd, kubelet, kube-proxy, DNS")
	if s.node, err = node.Start(ctx, node.Options{Images: shop.Images()}); err != nil {
		return err
	}
	s.console.Note("ready after %.0f s", time.Since(began).Seconds())
	if err := s.kubectl(ctx, "get", "nodes"); err != nil {
		return err
	}

	began = time.Now()
	s.console.Step("The control plane")
	s.console.Command("weft", shop.Install(shop.IgnoredLabels)...)
	s.console.Note("kubectl apply --server-side -f - gets the output")
	if err := shop.InstallControlPlane(ctx, s.node, shop.IgnoredLabels); err != nil {
		return err
	}
	s.console.Note("available after %.0f s", time.Since(began).Seconds())
	if err := s.apply(ctx, "identity.yaml", shop.Identity); err != nil {
		return err
	}

	s.console.Step("A namespace with injection, a server, a client that may call it, and a stranger")
	if err := s.apply(ctx, "shop.yaml", shop.Namespace(namespace)+shop.Server(namespace, "web", 2)+
		shop.Client(namespace, "client")+shop.Client(namespace, "stranger")+
		shop.Permission(namespace, "web", "client")); err != nil {
		return err
	}
	for object, condition := range map[string]string{"deployment/web": "condition=Available",
		"pod/client": "condition=Ready", "pod/stranger": "condition=Ready"} {
		if err := s.node.Wait(ctx, object, condition, "-n", namespace); err != nil {
			return err
		}
	}
	s.shop = &shop.Shop{Node: s.node, Namespace: namespace}
	if s.shop.Client, err = s.node.PodIP(ctx, namespace, "client"); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "pods", "-n", namespace)
}

// apply applies a file, whose name is printed.
func (s *scene) apply(ctx context.Context, name, yaml string) error {
	file := filepath.Join(s.node.Dir, name)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		return err
	}
	return s.kubectl(ctx, "apply", "--server-side", "-f", file)
}

// kubectl prints a command and its output.
func (s *scene) kubectl(ctx context.Context, args ...string) error {
	s.console.Command("kubectl", args...)
	out, err := s.node.Kubectl(ctx, "", args...)
	s.console.Output(out)
	return err
}

func (s *scene) identified(ctx context.Context) (string, error) {
	s.console.Command("kubectl", "exec", "client", "-n", namespace, "--", "curl", shop.Web)
	if err := shop.Eventually(ctx, "the client reaches web", s.shop.CheckVerified); err != nil {
		return "", err
	}
	of, err := s.shop.Call(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(of)
	s.console.Output(string(text))
	return "the proxy of " + of.Instance + " has verified " + of.Client, err
}

// denied sends a request of the stranger, and explains it.
func (s *scene) denied(ctx context.Context) (string, error) {
	address, err := s.node.PodIP(ctx, namespace, "stranger")
	if err != nil {
		return "", err
	}
	s.console.Command("kubectl", "exec", "stranger", "-n", namespace, "--", "curl", "-i", shop.Web)
	var got shop.Response
	err = shop.Eventually(ctx, "web responds to the stranger", func(ctx context.Context) error {
		if got, err = shop.Get(ctx, address, shop.Web); err == nil && got.Status != http.StatusForbidden {
			err = fmt.Errorf("%d %s%s, want 403", got.Status, got.Body, got.Error)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	s.console.Output(fmt.Sprintf("%d %s", got.Status, got.Body))
	args := []string{"explain", "--from", "stranger." + namespace, "--to", "web." + namespace}
	s.console.Command("weft", args...)
	explained, err := s.explain(ctx, args)
	s.console.Output(explained)
	if err == nil && !strings.Contains(explained, "denied") {
		err = errors.New("weft explain does not say that the request is denied")
	}
	return "403, as weft explain says", err
}

// explain runs weft in the Pod of the control plane, where the administrator's socket is.
func (s *scene) explain(ctx context.Context, args []string) (string, error) {
	return s.node.Kubectl(ctx, "", append([]string{"exec", "deployment/kuma-control-plane", "-n", "kuma-system", "--",
		"weft", "--api", "unix:/var/lib/weft/admin.sock"}, args...)...)
}

// lossless sends requests while something happens.
func (s *scene) lossless(ctx context.Context, to *shop.Shop, event func() error) (string, error) {
	tally, err := to.SendDuring(ctx, shop.Test, event)
	if err != nil {
		return "", err
	}
	return tally.Verdict()
}

func (s *scene) restarted(ctx context.Context) (string, error) {
	return s.lossless(ctx, s.shop, func() error {
		if err := s.kubectl(ctx, "rollout", "restart", "deployment/web", "-n", namespace); err != nil {
			return err
		}
		return s.kubectl(ctx, "rollout", "status", "deployment/web", "-n", namespace, "--timeout", "5m")
	})
}

// promoted has Argo Rollouts promote a new version, whose Pods have the identity of the Service before.
func (s *scene) promoted(ctx context.Context) (string, error) {
	if err := s.node.HasArgo(); err != nil {
		s.console.Note("%v", err)
		return "skipped without Argo Rollouts", nil
	}
	if err := s.node.StartArgo(ctx); err != nil {
		return "", err
	}
	const namespace = "blue-green"
	err := s.apply(ctx, "rollout.yaml", shop.Namespace(namespace)+shop.Rollout(namespace, "web", 2)+
		shop.Client(namespace, "client")+shop.Permission(namespace, "web", "client"))
	if err != nil {
		return "", err
	}
	for object, condition := range map[string]string{"rollout/web": "jsonpath={.status.phase}=Healthy",
		"pod/client": "condition=Ready"} {
		if err := s.node.Wait(ctx, object, condition, "-n", namespace); err != nil {
			return "", err
		}
	}
	to := &shop.Shop{Node: s.node, Namespace: namespace}
	if to.Client, err = s.node.PodIP(ctx, namespace, "client"); err != nil {
		return "", err
	}
	if err := shop.Eventually(ctx, "the client reaches web", to.CheckVerified); err != nil {
		return "", err
	}
	return s.lossless(ctx, to, func() error {
		patch := append([]string{"patch", "rollout", "web", "-n", namespace}, shop.NewVersion("green")...)
		s.console.Command("kubectl", patch...)
		if err := to.Promote(ctx, "green"); err != nil {
			return err
		}
		return s.kubectl(ctx, "get", "rollout,pods", "-n", namespace)
	})
}
