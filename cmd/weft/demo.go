package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var once bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show a mesh at work on this machine",
		Long: `Show a mesh of two zones at work on this machine (Linux): a global control plane and one for each zone,
services behind real Envoys with mutual TLS, a request that is denied, a cross-zone request,
and instances, an ingress and control planes that are killed under traffic. Every command is printed as it runs, every claim is checked, and nothing stays behind.

It stays up until Ctrl-C, so that you can try more; with --once it ends after its checks.`,
		Example: "  weft demo\n  weft demo --once",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options, err := demoPrograms()
			if err != nil {
				return err
			}
			options.Once, options.Out = once, command.OutOrStdout()
			return demo.Run(command.Context(), options)
		},
	}
	command.Flags().BoolVar(&once, "once", false, "end after the checks; the exit status says whether all held")
	command.AddCommand(newDemoServiceCommand())
	return command
}

// demoPrograms finds the executables that the demo runs: this one, weft-dp beside it or on the PATH, and Envoy from
// WEFT_ENVOY, the PATH or the directory of `make tools`.
func demoPrograms() (demo.Options, error) {
	self, err := os.Executable()
	if err != nil {
		return demo.Options{}, err
	}
	bin := filepath.Dir(self)
	options := demo.Options{Weft: self}
	if options.WeftDP, err = firstProgram(filepath.Join(bin, "weft-dp"), "weft-dp"); err != nil {
		return options, errors.New("weft-dp is neither beside weft nor on the PATH; `make build` makes both")
	}
	unpacked := filepath.Join(filepath.Dir(bin), ".tools", "envoy", "envoy")
	if chosen := os.Getenv("WEFT_ENVOY"); chosen != "" {
		if options.Envoy, err = firstProgram(chosen); err != nil {
			return options, fmt.Errorf("WEFT_ENVOY: %w", err)
		}
	} else if options.Envoy, err = firstProgram("envoy", unpacked); err != nil {
		return options,
			errors.New("there is no Envoy: run `make tools`, put envoy on the PATH, or set WEFT_ENVOY to its path")
	}
	return options, nil
}

// firstProgram returns the absolute path of the first candidate that can be run.
func firstProgram(candidates ...string) (string, error) {
	var problems []error
	for _, c := range candidates {
		found, err := exec.LookPath(c)
		if err == nil {
			return filepath.Abs(found)
		}
		problems = append(problems, err)
	}
	return "", errors.Join(problems...)
}

func newDemoServiceCommand() *cobra.Command {
	var name, instance, listen string
	command := &cobra.Command{
		Use:    "service",
		Short:  "The application of the demo: it returns its own name and the name of its caller",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			server := &http.Server{Handler: demo.Service(name, instance), ReadHeaderTimeout: 10 * time.Second}
			return server.Serve(listener)
		},
	}
	command.Flags().StringVar(&name, "name", "service", "the service's name")
	command.Flags().StringVar(&instance, "instance", "service-1", "the name of this instance of it")
	command.Flags().StringVar(&listen, "listen", "127.0.0.1:21081", "address:port to listen on")
	return command
}
