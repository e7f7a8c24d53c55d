package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/internal/agent"
	"weft/internal/agent/nameserver"
	"weft/internal/agent/redirect"
)

// defaultUser is the user of weft-dp and Envoy on a machine whose connections are redirected.
const defaultUser = "weft-dp"

// resolvConf is the file with the machine's resolvers.
const resolvConf = "/etc/resolv.conf"

func newInstallCommand() *cobra.Command {
	command := &cobra.Command{Use: "install", Short: "Redirect the machine's connections to its proxy"}
	command.AddCommand(newInstallRedirect())
	return command
}

func newValidateCommand() *cobra.Command {
	var port uint16
	var families string
	redirected := &cobra.Command{
		Use:   "transparent-proxy",
		Short: "Check that connections are redirected",
		Long: `Check that the connections of this user are redirected to the port of the proxy, before the proxy runs. The
exit code is 1 if they are not. Run it as another user than the proxy, whose own connections are not redirected. In a
Pod with the CNI plugin, it keeps the application from starting without the redirection.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ipv6Only := families == "ipv6" || !agent.MachineFamilies().Has(false)
			return redirect.Validate(command.Context(), port, ipv6Only)
		},
	}
	redirected.Flags().Uint16Var(&port, "redirect-outbound-port", 15001, "port of the proxy for outbound connections")
	redirected.Flags().StringVar(&families, "ip-family-mode", "dualstack", "dualstack, ipv4 or ipv6")
	command := &cobra.Command{Use: "validate", Short: "Check what install created"}
	command.AddCommand(redirected)
	return command
}

func newUninstallCommand() *cobra.Command {
	command := &cobra.Command{Use: "uninstall", Short: "Remove what install created"}
	command.AddCommand(newUninstallRedirect())
	return command
}

// redirection is the values of the flags.
type redirection struct {
	redirect.Options
	user, group                 string
	families                    string
	dns, allDNS                 bool
	inboundPorts, outboundPorts []string
	inboundIPs, outboundIPs     []string
	outboundOfUsers             []string
	dryRun, force               bool
}

func newInstallRedirect() *cobra.Command {
	_, command := newRedirection()
	return command
}

// newRedirection returns the command that installs a redirection, and the values of its flags.
func newRedirection() (*redirection, *cobra.Command) {
	r := &redirection{}
	command := &cobra.Command{
		Use:   "transparent-proxy",
		Short: "Install iptables rules that redirect connections",
		Long: `Install the iptables rules that redirect the TCP connections of this machine to its proxy. In a network
namespace, the rules apply to that namespace. They redirect inbound connections, and the outbound connections of
all programs except the proxy. With --redirect-dns, they also redirect DNS queries to the resolvers of
/etc/resolv.conf to weft-dp.

The rules last until the machine restarts. A second run with the same flags changes nothing; a run with other flags
replaces the rules at once. weft-dp uninstall transparent-proxy removes them.`,
		Example: `  useradd --system weft-dp
  weft-dp install transparent-proxy --redirect-dns --dry-run
  weft-dp install transparent-proxy --redirect-dns --exclude-inbound-ports 22,9902`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.complete(); err != nil {
				return err
			}
			return r.run(command, &r.Options, "connections go through the proxy now, until the machine restarts")
		},
	}
	f := command.Flags()
	f.StringVar(&r.user, "proxy-user", "",
		"user that weft-dp and its Envoy run as, a name or a number (default weft-dp)")
	f.StringVar(&r.group, "proxy-group", "", "group that weft-dp and its Envoy run as, in place of --proxy-user")
	f.Uint16Var(&r.InboundPort, "redirect-inbound-port", 15006,
		"port of the proxy for inbound connections (the Dataplane's redirectPortInbound)")
	f.Uint16Var(&r.OutboundPort, "redirect-outbound-port", 15001,
		"port of the proxy for outbound connections (the Dataplane's redirectPortOutbound)")
	f.BoolVar(&r.dns, "redirect-dns", false, "redirect DNS queries to the resolvers that /etc/resolv.conf has now")
	f.BoolVar(&r.allDNS, "redirect-all-dns-traffic", false, "redirect DNS queries to any address")
	f.Uint16Var(&r.DNSPort, "redirect-dns-port", 15053, "port where weft-dp serves DNS (--dns-port of weft-dp run)")
	f.StringSliceVar(&r.inboundPorts, "exclude-inbound-ports", []string{"22"},
		"ports of this machine, or ranges such as 8000-8010, whose inbound connections are not redirected; "+
			"without 22, ssh connections to the machine are redirected too")
	f.StringSliceVar(&r.outboundPorts, "exclude-outbound-ports", nil,
		"ports, or ranges, whose outbound connections are not redirected")
	f.StringSliceVar(&r.inboundIPs, "exclude-inbound-ips", nil,
		"client addresses, or ranges such as 10.0.0.0/8, whose inbound connections are not redirected")
	f.StringSliceVar(&r.outboundIPs, "exclude-outbound-ips", nil,
		"destination addresses, or ranges, whose outbound connections are not redirected")
	f.StringArrayVar(&r.outboundOfUsers, "exclude-outbound-ports-for-uids", nil,
		"ports to which connections of some users are not redirected, PROTOCOL:PORTS:USERS, such as tcp:22:1000 or "+
			"*:53:0-999; repeatable")
	f.StringVar(&r.families, "ip-family-mode", "dualstack", "dualstack, ipv4 or ipv6 (the Dataplane's ipFamilyMode)")
	r.addCommonFlags(command)
	f.SetNormalizeFunc(kumaNames)
	command.MarkFlagsMutuallyExclusive("proxy-user", "proxy-group")
	return r, command
}

// kumaNames accepts a flag of kuma-dp, whose users have it in scripts.
func kumaNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "kuma-dp-user" {
		name = "proxy-user"
	}
	return pflag.NormalizedName(name)
}

func newUninstallRedirect() *cobra.Command {
	var r redirection
	command := &cobra.Command{
		Use:   "transparent-proxy",
		Short: "Remove the rules that redirect connections",
		Long: `Remove the rules of weft-dp install transparent-proxy, and no other rules. Open connections
stay redirected until they end.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return r.run(command, nil, "connections are no longer redirected")
		},
	}
	r.addCommonFlags(command)
	return command
}

func (r *redirection) addCommonFlags(command *cobra.Command) {
	command.Flags().BoolVar(&r.dryRun, "dry-run", false,
		"print the input of iptables-restore and change nothing; without root, as if no rules were installed")
	command.Flags().BoolVar(&r.force, "force", false,
		"continue although another program has changed the rules, which are then lost, or another mesh redirects "+
			"connections")
}

// complete sets the options from the flags, and returns an error for invalid ones.
func (r *redirection) complete() (err error) {
	if r.Proxy, err = r.owner(); err != nil {
		return err
	}
	if err := r.SetFamilies(r.families); err != nil {
		return fmt.Errorf("--ip-family-mode: %w", err)
	}
	switch {
	case r.allDNS:
	case r.dns:
		if r.Resolvers, err = resolvers(); err != nil {
			return fmt.Errorf("--redirect-dns: %w; --redirect-all-dns-traffic needs none", err)
		}
	default:
		r.DNSPort = 0
	}
	if r.ExcludeInboundPorts, err = parseEach("exclude-inbound-ports", r.inboundPorts,
		redirect.ParsePorts); err != nil {
		return err
	}
	if r.ExcludeOutboundPorts, err = parseEach("exclude-outbound-ports", r.outboundPorts,
		redirect.ParsePorts); err != nil {
		return err
	}
	if r.ExcludeInboundIPs, err = parseEach("exclude-inbound-ips", r.inboundIPs, redirect.ParsePrefix); err != nil {
		return err
	}
	if r.ExcludeOutboundIPs, err = parseEach("exclude-outbound-ips", r.outboundIPs, redirect.ParsePrefix); err != nil {
		return err
	}
	r.ExcludeOutboundOfUsers, err = parseEach("exclude-outbound-ports-for-uids", r.outboundOfUsers,
		redirect.ParseUserPorts)
	return err
}

func parseEach[T any](flag string, texts []string, parse func(string) (T, error)) (all []T, err error) {
	for _, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func resolvers() (addresses []netip.Addr, err error) {
	found, err := nameserver.ReadResolvConf(resolvConf)
	for _, resolver := range found {
		addresses = append(addresses, resolver.Addr())
	}
	return addresses, err
}

// owner returns the user or group whose connections are the proxy's own and are not redirected.
func (r *redirection) owner() (redirect.Owner, error) {
	name, findID := cmp.Or(r.user, defaultUser), userID
	if r.group != "" {
		name, findID = r.group, groupID
	}
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return redirect.Owner{Group: r.group != "", ID: uint32(id)}, nil
	}
	text, err := findID(name)
	if err != nil {
		return redirect.Owner{},
			fmt.Errorf("%w; create a user for weft-dp (useradd --system %s), or set another one with --proxy-user "+
				"or --proxy-group", err, name)
	}
	id, err := strconv.ParseUint(text, 10, 32)
	return redirect.Owner{Group: r.group != "", ID: uint32(id)}, err
}

func userID(name string) (string, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return "", fmt.Errorf("there is no user %q", name)
	}
	return found.Uid, nil
}

func groupID(name string) (string, error) {
	found, err := user.LookupGroup(name)
	if err != nil {
		return "", fmt.Errorf("there is no group %q", name)
	}
	return found.Gid, nil
}

// run applies the changes that lead to the options, or prints them with --dry-run. Nil options remove all rules. The
// text done is printed after a change.
func (r *redirection) run(command *cobra.Command, options *redirect.Options, done string) error {
	out := command.OutOrStdout()
	run := redirect.Run{Force: r.force, System: redirect.Nothing{}}
	if !r.dryRun || os.Geteuid() == 0 {
		programs, err := redirect.FindPrograms(options != nil && options.IPv6)
		if err != nil {
			return err
		}
		run.System = programs
	}
	changes, err := run.Plan(options)
	switch {
	case err != nil:
		return err
	case r.dryRun:
		fmt.Fprint(out, redirect.Show(changes))
		return nil
	case len(changes) == 0:
		done = "nothing to change"
	}
	if err := run.Apply(changes); err != nil {
		return err
	}
	fmt.Fprintln(out, done)
	if options != nil {
		if err := redirect.KeepHalfClosed(); err != nil {
			fmt.Fprintln(command.ErrOrStderr(), "warning:", err)
		}
	}
	return nil
}
