//go:build linux

// Command weft-cni redirects the connections of Pods on a Kubernetes node. A container runtime runs it as a CNI plugin,
// by the environment of the CNI specification. The DaemonSet of the chart runs it to install this plugin on its node.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/cni"
)

// version is the version of the release, which the build sets.
var version = "dev"

func main() {
	if os.Getenv("CNI_COMMAND") != "" {
		cni.Main("weft-cni " + version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "weft-cni:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "weft-cni",
		Short:         "The CNI plugin that redirects the connections of Pods",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRunCommand(), newReadyCommand())
	return root
}

func newRunCommand() *cobra.Command {
	var node cni.Node
	var namespace, name, level string
	command := &cobra.Command{
		Use:   "run",
		Short: "Install the plugin on this node, and keep it installed",
		Long: `Copy this program to the folder of the node's CNI plugins, and add it as the last plugin to the configuration that
the container runtime uses, again after each change of it by others. SIGTERM ends the command. If the DaemonSet was
deleted, the configuration is then as it was, and the program removed. Otherwise both stay, so that Pods are redirected
while the DaemonSet is updated.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var minimum slog.Level
			if err := minimum.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: minimum}))
			return run(command.Context(), &node, cni.InCluster(namespace, name), log)
		},
	}
	addNode(command, &node)
	f := command.Flags()
	f.StringVar(&namespace, "namespace", "kube-system", "namespace of the DaemonSet")
	f.StringVar(&name, "daemon-set", "kuma-cni-node", "name of the DaemonSet")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return command
}

// apiTimeout bounds the question whether the DaemonSet was deleted, which has to end before the kubelet kills the Pod.
const apiTimeout = 5 * time.Second

func run(ctx context.Context, node *cni.Node, of *cni.DaemonSet, log *slog.Logger) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := node.InstallProgram(program); err != nil {
		return err
	}
	if err := node.Keep(ctx, log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
	defer cancel()
	switch deleted, err := of.IsDeleted(ctx); {
	case err != nil:
		log.Warn("the plugin stays on this node, since it is not known whether the DaemonSet was deleted", "error", err)
	case deleted:
		log.Info("the plugin is removed from this node, since the DaemonSet was deleted")
		return node.Remove()
	default:
		log.Info("the plugin stays on this node, since the DaemonSet exists")
	}
	return nil
}

func newReadyCommand() *cobra.Command {
	var node cni.Node
	command := &cobra.Command{
		Use:   "ready",
		Short: "Check that the plugin is installed on this node",
		Long: `Check that new Pods of this node are redirected. This is the readiness probe of the DaemonSet. The exit code is 1 if
the container runtime does not call the plugin.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return node.CheckInstalled() },
	}
	addNode(command, &node)
	return command
}

func addNode(command *cobra.Command, node *cni.Node) {
	f := command.Flags()
	f.StringVar(&node.NetDir, "net-dir", "/etc/cni/net.d", "folder of the container runtime's network configurations")
	f.StringVar(&node.BinDir, "bin-dir", "/opt/cni/bin", "folder of the container runtime's CNI plugins")
	f.StringVar(&node.ConfName, "conf-name", "",
		"file in --net-dir to which the plugin is added (default the first one, which container runtimes use)")
}
