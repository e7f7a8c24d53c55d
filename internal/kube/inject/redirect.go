package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weft/internal/agent/redirect"
)

// readinessPort is the port of weft-dp's `/ready` and `/live`, unless a container of the Pod has it.
const readinessPort = 9902

// allPorts excludes every port: a delegated gateway receives its connections itself.
const allPorts = "1-65535"

// redirection is the redirection of the Pod, by the CNI plugin or by the init container.
func (i *injection) redirection() *redirect.Config {
	o, s := &i.options, i.Settings
	c := &redirect.Config{IPFamilyMode: s.IPFamilyMode, User: fmt.Sprint(s.UID)}
	c.Redirect.DNS = redirect.ConfigDNS{Enabled: o.dns, CaptureAll: o.dns, Port: o.dnsPort}
	c.Redirect.Inbound = redirect.ConfigDirection{Enabled: !o.gateway, Port: s.InboundPort,
		ExcludeIPs: o.excludeInboundIPs, ExcludePorts: i.openPorts()}
	c.Redirect.Outbound = redirect.ConfigDirection{Enabled: true, Port: s.OutboundPort,
		ExcludeIPs: o.excludeOutboundIPs, ExcludePorts: o.excludeOutboundPorts, ExcludeOfUIDs: o.excludeUsers}
	return c
}

// openPorts are the ports whose inbound connections are not redirected: the user's, and those that the kubelet calls.
func (i *injection) openPorts() []string {
	if i.options.gateway {
		return []string{allPorts}
	}
	ports := slices.Clone(i.options.excludeInboundPorts)
	if p := i.options.probePort; p != 0 {
		ports = append(ports, fmt.Sprint(p))
	} else {
		ports = append(ports, i.probedPorts()...)
	}
	ports = append(ports, fmt.Sprint(i.options.readinessPort))
	var all []string
	for _, p := range ports {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// annotation is the value of the annotation podmeta.Redirect.
func annotation(c *redirect.Config) string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts, numbers and lists of them
	}
	return string(text)
}

// flags are the flags of `weft-dp install transparent-proxy`.
func flags(c *redirect.Config) []string {
	in, out := c.Redirect.Inbound, c.Redirect.Outbound
	flags := []string{
		"--proxy-user=" + c.User,
		"--ip-family-mode=" + c.IPFamilyMode,
		fmt.Sprintf("--redirect-inbound-port=%d", in.Port),
		fmt.Sprintf("--redirect-outbound-port=%d", out.Port),
		"--exclude-inbound-ports=" + strings.Join(in.ExcludePorts, ","),
	}
	for _, list := range []struct {
		flag  string
		items []string
	}{
		{"exclude-inbound-ips", in.ExcludeIPs}, {"exclude-outbound-ports", out.ExcludePorts},
		{"exclude-outbound-ips", out.ExcludeIPs},
	} {
		if len(list.items) > 0 {
			flags = append(flags, "--"+list.flag+"="+strings.Join(list.items, ","))
		}
	}
	for _, item := range out.ExcludeOfUIDs {
		flags = append(flags, "--exclude-outbound-ports-for-uids="+item)
	}
	if dns := c.Redirect.DNS; dns.Enabled {
		flags = append(flags, "--redirect-all-dns-traffic", fmt.Sprintf("--redirect-dns-port=%d", dns.Port))
	}
	return flags
}
