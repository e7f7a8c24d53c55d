package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/internal/agent/kumaenv"
)

// kumaFlags are the flags of kuma-dp that weft-dp lacks, with what to write instead.
var kumaFlags = map[string]string{
	"binary-path":                      "write --envoy PATH",
	"bind-outbounds":                   "leave it out: outbounds of a Dataplane without transparentProxying are bound",
	"check-frequency":                  "leave it out: weft-dp wait returns as soon as the proxy is ready",
	"config-dir":                       "leave it out: weft-dp removes its files when it ends",
	"d":                                "write --dataplane-file FILE",
	"dataplane":                        "write the Dataplane into a file, and --dataplane-file FILE",
	"dataplane-token":                  "write the token into a file, and --dataplane-token-file FILE",
	"dns-coredns-config-template-path": "leave it out: weft-dp serves DNS itself; --dns-resolvers has further servers",
	"dns-coredns-path":                 "leave it out: weft-dp serves DNS itself",
	"dns-coredns-port":                 "write --dns-port PORT",
	"dns-enable-logging":               "leave it out: queries are not logged",
	"dns-enabled":                      "leave it out, or write --dns-port 0 for no DNS",
	"dns-envoy-port":                   "leave it out: weft-dp serves DNS itself, at --dns-port",
	"dns-prometheus-port":              "leave it out: weft-dp serves DNS itself",
	"dns-server-config-dir":            "leave it out: weft-dp serves DNS itself",
	"drain-time":                       "set dpServer.drainTime of the control plane",
	"log-level":                        "leave it out, or write --verbose for debug messages",
	"log-max-age":                      "leave it out: the log is written to standard error",
	"log-max-retained-files":           "leave it out: the log is written to standard error",
	"log-max-size":                     "leave it out: the log is written to standard error",
	"log-output-path":                  "redirect standard error to the file: 2>> FILE",
	"metrics-cert-path":                "leave it out: no listener for metrics has a certificate of its own",
	"metrics-key-path":                 "leave it out: no listener for metrics has a certificate of its own",
	"request-timeout":                  "write --control-socket PATH, the socket of weft-dp run",
	"skip-verify":                      "write --ca-cert-file FILE: the certificate is always verified",
	"timeout":                          "run weft-dp wait with a limit of the shell: timeout 180 weft-dp wait",
	"transparent-proxy":                "set networking.transparentProxying, and run weft-dp install transparent-proxy",
	"transparent-proxy-config":         "set networking.transparentProxying, and run weft-dp install transparent-proxy",
	"unix-socket":                      "write --control-socket PATH, the socket of weft-dp run",
	"url":                              "write --control-socket PATH, the socket of weft-dp run",
	"work-dir":                         "leave it out: weft-dp removes its files when it ends",
}

// redirectFlags are the flags of `kumactl install transparent-proxy`, and of uninstall, that weft-dp lacks, with what
// to write instead.
var redirectFlags = map[string]string{
	"config":                    "write its values as flags, see --help",
	"config-file":               "write its values as flags, see --help",
	"disable-comments":          "leave it out: weft-dp finds its rules by their comments",
	"drop-invalid-packets":      "leave it out, and add a rule of your own for them",
	"ebpf-bpffs-path":           noEBPF,
	"ebpf-cgroup-path":          noEBPF,
	"ebpf-enabled":              noEBPF,
	"ebpf-instance-ip":          noEBPF,
	"ebpf-programs-source-path": noEBPF,
	"ebpf-tc-attach-iface":      noEBPF,
	"iptables-executables":      "leave it out: the programs of the PATH are run",
	"iptables-logs":             "leave it out, and add a LOG rule of your own",
	"kuma-dp-uid":               "write --proxy-user UID",
	"max-retries":               oneAttempt,
	"redirect-inbound":          inboundPorts,
	"redirect-inbound-insert-instead-of-append":  ruleOrder,
	"redirect-outbound-insert-instead-of-append": ruleOrder,
	"skip-dns-conntrack-zone-split":              "leave it out: the queries of weft-dp have a zone of their own",
	"sleep-between-retries":                      oneAttempt,
	"store-firewalld":                            "leave it out, and run the command at each start of the machine",
	"verbose":                                    verboseRules,
	"vnet":                                       "leave it out: only connections of the machine itself are redirected",
	"wait":                                       waitsForLock,
	"wait-interval":                              waitsForLock,
}

const (
	inboundPorts = "leave it out, or write --exclude-inbound-ports 1-65535 to redirect none"
	verboseRules = "leave it out: an error has the output of iptables, and --dry-run prints the rules"
	noEBPF       = "leave it out: connections are redirected by iptables"
	oneAttempt   = "leave it out: a failed attempt changes nothing, so run the command again"
	ruleOrder    = "leave it out, and run the command before other programs add their rules: its rules come last"
	waitsForLock = "leave it out: weft-dp waits for other programs that change the rules"
)

// explainFlag adds to the error of an unknown flag what replaces a flag of kuma-dp or, for a redirection, of kumactl.
func explainFlag(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	flags, of := kumaFlags, "kuma-dp"
	if command.Name() == "transparent-proxy" {
		flags, of = redirectFlags, "kumactl"
	}
	if help, ok := flags[unknown.GetSpecifiedName()]; ok {
		return fmt.Errorf("%w, which is a flag of %s; %s", err, of, help)
	}
	return err
}

// noArgs returns an error for arguments. In kuma-dp, `-v name=value` is a variable.
func noArgs(command *cobra.Command, args []string) error {
	if len(args) > 0 && strings.Contains(args[0], "=") {
		return fmt.Errorf("%q is not a flag, and -v is --verbose; write --dataplane-var %s", args[0], args[0])
	}
	return cobra.NoArgs(command, args)
}

// readVariables sets the flags of weft-dp run that are not given to the values of the variables of kuma-dp. The
// warnings name variables without effect.
func readVariables(flags *pflag.FlagSet, environ []string) (warnings []string, err error) {
	values := map[string]string{}
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" {
			continue
		}
		values[name] = value
		if reason := kumaenv.IgnoredReason(name); reason != "" {
			warnings = append(warnings, name+" has no effect: "+reason)
		}
	}
	given := func(flag string) bool { return flags.Changed(flag) }
	byFile, byName := given("dataplane-file"), given("mesh") || given("name")
	for _, known := range kumaenv.Flags {
		value, flag := values[known.Variable], known.Flag
		if known.Variable == "KUMA_DNS_ENABLED" {
			if enabled, err := strconv.ParseBool(value); err != nil || enabled {
				continue // the port decides
			}
			value = "0"
		}
		switch {
		case value == "" || given(flag):
			continue
		case flag == "envoy-max-memory" && value == "0":
			continue // in Kuma no value, and here too little
		case flag == "dataplane-file" && byName:
			warnings = append(warnings, known.Variable+" has no effect: --mesh and --name are given")
			continue
		case (flag == "mesh" || flag == "name") && byFile:
			warnings = append(warnings, known.Variable+" has no effect: the file of the Dataplane has it")
			continue
		}
		if err := flags.Set(flag, value); err != nil {
			return nil, fmt.Errorf("%s, which sets --%s: %w", known.Variable, flag, err)
		}
		byFile = byFile || flag == "dataplane-file"
	}
	return warnings, nil
}
