package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// redirection is the redirection of a Pod's connections. Its JSON is the annotation that the CNI plugin and the control
// plane read; it has the form of Kuma's configuration of transparent proxies.
type redirection struct {
	IPFamilyMode string        `json:"ipFamilyMode"`
	User         string        `json:"kumaDPUser"`
	Redirect     redirectParts `json:"redirect"`
}

type redirectParts struct {
	DNS      redirectDNS       `json:"dns"`
	Inbound  redirectDirection `json:"inbound"`
	Outbound redirectDirection `json:"outbound"`
}

type redirectDNS struct {
	Enabled    bool   `json:"enabled"`
	CaptureAll bool   `json:"captureAll"`
	Port       uint16 `json:"port"`
}

type redirectDirection struct {
	Enabled       bool     `json:"enabled"`
	Port          uint16   `json:"port"`
	ExcludePorts  []string `json:"excludePorts,omitempty"`
	ExcludeIPs    []string `json:"excludePortsForIPs,omitempty"`
	ExcludeOfUIDs []string `json:"excludePortsForUIDs,omitempty"`
}

// readinessPort is the port of weft-dp's `/ready` and `/live`.
const readinessPort = 9902

// allPorts excludes every port: a delegated gateway receives its connections itself.
const allPorts = "1-65535"

func (i *injection) redirection() *redirection {
	o, s := &i.options, i.Settings
	r := &redirection{IPFamilyMode: s.IPFamilyMode, User: fmt.Sprint(s.UID)}
	r.Redirect.DNS = redirectDNS{Enabled: o.dns, CaptureAll: o.dns, Port: o.dnsPort}
	r.Redirect.Inbound = redirectDirection{Enabled: !o.gateway, Port: s.InboundPort, ExcludeIPs: o.excludeInboundIPs,
		ExcludePorts: i.openPorts()}
	r.Redirect.Outbound = redirectDirection{Enabled: true, Port: s.OutboundPort, ExcludeIPs: o.excludeOutboundIPs,
		ExcludePorts: o.excludeOutboundPorts, ExcludeOfUIDs: o.excludeUsers}
	return r
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
	ports = append(ports, fmt.Sprint(readinessPort))
	var all []string
	for _, p := range ports {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

func (r *redirection) annotation() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, numbers and lists of them
	}
	return string(text)
}

// flags are the flags of `weft-dp install transparent-proxy`.
func (r *redirection) flags() []string {
	in, out := r.Redirect.Inbound, r.Redirect.Outbound
	flags := []string{
		"--proxy-user=" + r.User,
		"--ip-family-mode=" + r.IPFamilyMode,
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
	if dns := r.Redirect.DNS; dns.Enabled {
		flags = append(flags, "--redirect-all-dns-traffic", fmt.Sprintf("--redirect-dns-port=%d", dns.Port))
	}
	return flags
}
