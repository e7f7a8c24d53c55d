package redirect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ConfigAnnotation is the annotation of a Pod with its [Config], as JSON. The injector writes it.
const ConfigAnnotation = "traffic.kuma.io/transparent-proxy-config"

// Config is the redirection of a Pod's connections, in the form of Kuma's configuration of transparent proxies.
type Config struct {
	IPFamilyMode string      `json:"ipFamilyMode"` // dualstack, ipv4 or ipv6
	User         string      `json:"kumaDPUser"`   // the number of the proxy's user
	Redirect     ConfigParts `json:"redirect"`
}

// ConfigParts are the redirections of a [Config].
type ConfigParts struct {
	DNS      ConfigDNS       `json:"dns"`
	Inbound  ConfigDirection `json:"inbound"`
	Outbound ConfigDirection `json:"outbound"`
}

// ConfigDNS is the redirection of DNS queries. CaptureAll redirects queries to any address.
type ConfigDNS struct {
	Enabled    bool   `json:"enabled"`
	CaptureAll bool   `json:"captureAll"`
	Port       uint16 `json:"port"`
}

// ConfigDirection is the redirection of inbound or of outbound connections. The texts are those that [ParsePorts],
// [ParsePrefix] and [ParseUserPorts] read.
type ConfigDirection struct {
	Enabled       bool     `json:"enabled"`
	Port          uint16   `json:"port"`
	ExcludePorts  []string `json:"excludePorts,omitempty"`
	ExcludeIPs    []string `json:"excludePortsForIPs,omitempty"`
	ExcludeOfUIDs []string `json:"excludePortsForUIDs,omitempty"`
}

// ParseConfig reads the JSON of a [Config]. An unknown field is an error, since a redirection without it may be
// incomplete.
func ParseConfig(text string) (*Config, error) {
	var c Config
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return nil, err
	}
	return &c, nil
}

// Options returns the options of the redirection in the network namespace of this thread, which decides whether there
// is IPv6. The error names the invalid field.
func (c *Config) Options() (*Options, error) {
	user, err := strconv.ParseUint(c.User, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("kumaDPUser: %q is not the number of a user", c.User)
	}
	in, out, dns := &c.Redirect.Inbound, &c.Redirect.Outbound, &c.Redirect.DNS
	o := &Options{Proxy: Owner{ID: uint32(user)}, InboundPort: in.Port, OutboundPort: out.Port}
	switch {
	case !out.Enabled:
		return nil, errors.New("redirect.outbound.enabled: is false; outbound connections are always redirected")
	case dns.Enabled && !dns.CaptureAll:
		return nil, errors.New("redirect.dns.captureAll: is false; queries to all addresses are redirected, or none")
	case dns.Enabled && dns.Port == 0:
		return nil, errors.New("redirect.dns.port: is 0")
	case dns.Enabled:
		o.DNSPort = dns.Port
	}
	inboundPorts := in.ExcludePorts
	if !in.Enabled {
		inboundPorts = []string{"1-65535"}
	}
	var errs [6]error
	errs[0] = o.SetFamilies(c.IPFamilyMode)
	o.ExcludeInboundPorts, errs[1] = parseEach(inboundPorts, ParsePorts)
	o.ExcludeInboundIPs, errs[2] = parseEach(in.ExcludeIPs, ParsePrefix)
	o.ExcludeOutboundPorts, errs[3] = parseEach(out.ExcludePorts, ParsePorts)
	o.ExcludeOutboundIPs, errs[4] = parseEach(out.ExcludeIPs, ParsePrefix)
	o.ExcludeOutboundOfUsers, errs[5] = parseEach(out.ExcludeOfUIDs, ParseUserPorts)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return o, o.Check()
}

// SetFamilies sets the redirected IP families: dualstack, ipv4 or ipv6. With dualstack, IPv6 is redirected where the
// network namespace of this thread has it.
func (o *Options) SetFamilies(mode string) error {
	switch mode {
	case "dualstack":
		o.IPv4, o.IPv6 = true, HasIPv6()
	case "ipv4":
		o.IPv4 = true
	case "ipv6":
		o.IPv6 = true
	default:
		return fmt.Errorf("the IP family mode is %q, want dualstack, ipv4 or ipv6", mode)
	}
	return nil
}

func parseEach[T any](texts []string, parse func(string) (T, error)) (all []T, err error) {
	for _, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
