// Package cni redirects the connections of Pods from the node, in place of a privileged init container: a CNI plugin
// (CNI specification 1.1.0) that the container runtime calls after the plugin of the cluster's network, and the
// installation of this plugin on a node.
//
// The plugin gets the annotations of a Pod from the container runtime, so it needs no API server and no token. It
// fails closed: a Pod whose redirection can't be installed does not start.
package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"weft/internal/agent/redirect"
)

// Type is the type of the plugin in a configuration, and the name of its program.
const Type = "kuma-cni"

// capability is the capability by which containerd and CRI-O give a plugin the annotations of a Pod.
const capability = "io.kubernetes.cri.pod-annotations"

// injectedAnnotation is the annotation of Pods that have a sidecar.
const injectedAnnotation = "kuma.io/sidecar-injected"

// versions are the versions of the configurations that the plugin reads. Older ones have no chains.
var versions = version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Main runs the plugin as the environment and the standard input say, and ends the process. About is its name and
// version.
func Main(about string) {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: add, Check: check,
		// The rules end with the network namespace, so there is nothing to delete.
		Del: nothing, GC: nothing,
		// A plugin that is not ready makes its Node NotReady, whose Pods are then evicted.
		Status: nothing,
	}, versions, about)
}

func nothing(*skel.CmdArgs) error { return nil }

// configuration is the configuration that the plugin gets.
type configuration struct {
	types.PluginConf
	RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
}

func read(args *skel.CmdArgs) (*configuration, error) {
	var c configuration
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if c.PrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, Type+" is the first plugin of the network",
			"it must be after the plugin that makes the interface of the Pod")
	}
	return &c, nil
}

// add installs the redirection of a Pod. Its result is that of the plugin before it.
func add(args *skel.CmdArgs) error {
	c, err := read(args)
	if err != nil {
		return err
	}
	if err := redirected(args, c, apply); err != nil {
		return err
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

// check returns an error unless the redirection of a Pod is installed as its annotation says.
func check(args *skel.CmdArgs) error {
	c, err := read(args)
	if err != nil {
		return err
	}
	return redirected(args, c, func(_ *redirect.Run, changes []redirect.Change) error {
		if len(changes) > 0 {
			return errors.New("its connections are not redirected as its annotation " + redirect.ConfigAnnotation +
				" says; delete the Pod, so that it starts again")
		}
		return nil
	})
}

func apply(run *redirect.Run, changes []redirect.Change) error {
	if err := run.Apply(changes); err != nil {
		return err
	}
	_ = redirect.KeepHalfClosed() // of few connections, for which no Pod should fail
	return nil
}

// podOf returns the Pod that a container runtime names in its arguments; empty for a container that is no Pod.
func podOf(args string) (namespace, name string) {
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		}
	}
	return namespace, name
}

// redirected calls do in the network namespace of a Pod with a sidecar, with the changes that lead to its redirection.
// It does nothing for containers that are no Pods, and for other Pods.
func redirected(args *skel.CmdArgs, c *configuration, do func(*redirect.Run, []redirect.Change) error) error {
	namespace, name := podOf(args.Args)
	if name == "" || namespace == "kube-system" { // the injector excludes kube-system, too
		return nil
	}
	config, err := c.redirection()
	if err == nil && config != nil {
		err = inNamespace(args.Netns, func() error { return plan(config, do) })
	}
	if err != nil {
		return types.NewError(types.ErrInternal, fmt.Sprintf("the Pod %s/%s can't be redirected to its sidecar: %s",
			namespace, name, strings.Join(strings.Fields(err.Error()), " ")), "") // an event shows it as one line
	}
	return nil
}

// redirection returns the redirection of the Pod by its annotations; nil for a Pod without one. A Pod whose annotations
// were removed after the injection is one, and its container kuma-validation ends with an error.
func (c *configuration) redirection() (*redirect.Config, error) {
	given, ok := c.RuntimeConfig[capability]
	if !ok {
		return nil, errors.New("the container runtime does not give the annotations of the Pod to plugins " +
			"(capability " + capability + "); use containerd or CRI-O")
	}
	var annotations map[string]string
	if err := json.Unmarshal(given, &annotations); err != nil {
		return nil, fmt.Errorf("runtimeConfig: %w", err)
	}
	text := annotations[redirect.ConfigAnnotation]
	if annotations[injectedAnnotation] != "true" || text == "" { // a zone proxy is not redirected
		return nil, nil
	}
	config, err := redirect.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s: %w", redirect.ConfigAnnotation, err)
	}
	return config, nil
}

// plan calls do with the changes of this network namespace that lead to a redirection.
func plan(config *redirect.Config, do func(*redirect.Run, []redirect.Change) error) error {
	options, err := config.Options()
	if err != nil {
		return fmt.Errorf("the annotation %s: %w", redirect.ConfigAnnotation, err)
	}
	programs, err := redirect.FindPrograms(options.IPv6)
	if err != nil {
		return err
	}
	run := &redirect.Run{System: programs}
	changes, err := run.Plan(options)
	if err != nil {
		return err
	}
	return do(run, changes)
}
