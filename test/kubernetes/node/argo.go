package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"weft/internal/testwait"
)

// argo is the program of Argo Rollouts, which most tests don't need.
const argo = "rollouts-controller"

// HasArgo returns an error where Argo Rollouts is not built.
func (n *Node) HasArgo() error {
	if _, err := os.Stat(n.programs[argo]); err != nil {
		return fmt.Errorf("rollouts-controller is not built, `make argo` does so once, in about 5 minutes: %w", err)
	}
	return nil
}

// StartArgo starts the controller of Argo Rollouts, outside of a Pod.
func (n *Node) StartArgo(ctx context.Context) error {
	if err := n.HasArgo(); err != nil {
		return err
	}
	_, file, _, _ := runtime.Caller(0)
	find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-rollouts")
	find.Dir = filepath.Join(filepath.Dir(file), "..", "argo")
	module, err := find.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", find, err)
	}
	crds := filepath.Join(strings.TrimSpace(string(module)), "manifests", "crds")
	definitions, err := filepath.Glob(filepath.Join(crds, "*-crd.yaml"))
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if _, err := n.Kubectl(ctx, "", "apply", "--server-side", "-f", definition); err != nil {
			return err
		}
		// A new definition has no conditions, which kubectl could wait for, until its names are accepted.
		for _, condition := range []string{"jsonpath={.status.acceptedNames.plural}", "condition=Established"} {
			if err := n.Wait(ctx, "--filename="+definition, condition); err != nil {
				return err
			}
		}
	}
	if _, err := n.Kubectl(ctx, "", "create", "namespace", "argo-rollouts"); err != nil { // of its lease
		return err
	}
	controller, err := n.hosts[0].start(argo, "--kubeconfig", n.Kubeconfig(), "--healthzPort", "10270",
		"--metricsPort", "10271")
	if err != nil {
		return err
	}
	return controller.Ready(testwait.Timeout, "http://127.0.0.1:10270/healthz", local)
}
