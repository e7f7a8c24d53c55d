package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// setting is one setting of an operator.
type setting struct {
	path     string // in the YAML file
	list     bool   // a list in the file; a comma-separated text in a variable
	document bool   // a list of mappings in the file; JSON or YAML in a variable
	mapping  bool   // a mapping in the file; KEY:VALUE,KEY:VALUE in a variable
	env      string
	alias    string // another name of the variable; empty: none
	secret   bool   // never shown
	fallback string // the default
	doc      string
	// set parses a value into its field. Its error continues a sentence that starts with the value.
	set func(*Settings, string) error
}

// all is the list of settings, in the order of the documentation.
var all = slices.Concat(zoneSettings, plain, storeSettings, injectorSettings, podSettings, accessRules(), meshRules)

var plain = []setting{
	{
		path: "environment", env: "KUMA_ENVIRONMENT", fallback: string(OnUniversal),
		doc: "The environment of the control plane. `universal`: machines. `kubernetes`: a cluster, whose API server " +
			"is the store (`store.type: kubernetes`); resources have names NAME.NAMESPACE. See " +
			"[Kubernetes](kubernetes.md).",
		set: func(s *Settings, v string) error {
			s.Environment = Environment(v)
			if !slices.Contains([]Environment{OnUniversal, OnKubernetes}, s.Environment) {
				return errors.New("is not an environment; use universal or kubernetes")
			}
			return nil
		},
	},
	{
		path: "general.dataDir", env: "KUMA_GENERAL_DATA_DIR", fallback: "weft-data",
		doc: "The data directory: the store, the keys and the server's own certificates. A relative path starts at " +
			"the working directory. Flag: `--data-dir`.",
		set: text(func(s *Settings) *string { return &s.DataDir }),
	},
	{
		path: "general.tlsCertFile", env: "KUMA_GENERAL_TLS_CERT_FILE",
		doc: "The certificate chain in PEM of the data plane server. Empty: the control plane generates one with its " +
			"own CA, whose certificate is `ca.crt` in the data directory.",
		set: text(func(s *Settings) *string { return &s.TLSCertFile }),
	},
	{
		path: "general.tlsKeyFile", env: "KUMA_GENERAL_TLS_KEY_FILE",
		doc: "The private key of that certificate in PEM.",
		set: text(func(s *Settings) *string { return &s.TLSKeyFile }),
	},
	{
		path: "general.logLevel", env: "KUMA_GENERAL_LOG_LEVEL", fallback: "info",
		doc: "The log level: `debug`, `info`, `warn` or `error`.",
		set: func(s *Settings, v string) error {
			if err := s.LogLevel.UnmarshalText([]byte(v)); err != nil {
				return errors.New("is not a log level; use debug, info, warn or error")
			}
			return nil
		},
	},
	{
		path: "apiServer.http.interface", env: "KUMA_API_SERVER_HTTP_INTERFACE", fallback: "0.0.0.0",
		doc: "The IP address on which the HTTP API listens.",
		set: address(func(s *Settings) *string { return &s.API.Interface }),
	},
	{
		path: "apiServer.http.port", env: "KUMA_API_SERVER_HTTP_PORT", fallback: "5681",
		doc: "The port of the HTTP API; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.API.Port }),
	},
	{
		path: "apiServer.http.enabled", env: "KUMA_API_SERVER_HTTP_ENABLED", fallback: "true",
		doc: "Serve the API without TLS too. Tokens can be intercepted on this port.",
		set: boolean(func(s *Settings) *bool { return &s.API.Enabled }),
	},
	{
		path: "apiServer.https.enabled", env: "KUMA_API_SERVER_HTTPS_ENABLED", fallback: "true",
		doc: "Serve the API over TLS.",
		set: boolean(func(s *Settings) *bool { return &s.APIOverTLS.Enabled }),
	},
	{
		path: "apiServer.https.interface", env: "KUMA_API_SERVER_HTTPS_INTERFACE", fallback: "0.0.0.0",
		doc: "The IP address on which the API listens with TLS.",
		set: address(func(s *Settings) *string { return &s.APIOverTLS.Interface }),
	},
	{
		path: "apiServer.https.port", env: "KUMA_API_SERVER_HTTPS_PORT", fallback: "5682",
		doc: "The port of the API with TLS; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.APIOverTLS.Port }),
	},
	{
		path: "apiServer.https.tlsCertFile", env: "KUMA_API_SERVER_HTTPS_TLS_CERT_FILE",
		doc: "The API's certificate chain in PEM, read again when it changes. Empty: that of the data plane server, " +
			"`general.tlsCertFile`.",
		set: text(func(s *Settings) *string { return &s.APIOverTLS.CertFile }),
	},
	{
		path: "apiServer.https.tlsKeyFile", env: "KUMA_API_SERVER_HTTPS_TLS_KEY_FILE",
		doc: "The private key of that certificate in PEM.",
		set: text(func(s *Settings) *string { return &s.APIOverTLS.KeyFile }),
	},
	{
		path: "apiServer.https.tlsCaFile", env: "KUMA_API_SERVER_HTTPS_TLS_CA_FILE",
		doc: "CA certificates in PEM for client certificates, read again when they change. A client certificate of " +
			"one of these CAs identifies a user of the API: the common name is the user's name, the organizations " +
			"are the groups.",
		set: text(func(s *Settings) *string { return &s.APIOverTLS.ClientCAFile }),
	},
	{
		path: "apiServer.https.requireClientCert", env: "KUMA_API_SERVER_HTTPS_REQUIRE_CLIENT_CERT", fallback: "false",
		doc: "Require a client certificate: the TLS handshake fails without one, even for callers with a token.",
		set: boolean(func(s *Settings) *bool { return &s.APIOverTLS.RequireClientCert }),
	},
	{
		path: "apiServer.auth.clientCertsDir", env: "KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR",
		doc: "A folder with further CA certificates for client certificates, in files `*.pem` and `*.crt`.",
		set: text(func(s *Settings) *string { return &s.APIOverTLS.ClientCADir }),
	},
	{
		path: "apiServer.authn.localhostIsAdmin", env: "KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN", fallback: "false",
		doc: "`true` has no effect and produces a warning: a loopback address proves nothing, because every proxy on " +
			"this machine connects from there. The user that runs the control plane, and root, are administrators " +
			"through the unix socket `admin.sock` in the data directory, which `weft` finds automatically.",
		set: func(_ *Settings, v string) error {
			switch admin, err := strconv.ParseBool(v); {
			case err != nil:
				return errors.New("is neither true nor false")
			case admin:
				return noEffect("has no effect: a loopback address proves nothing, since every proxy on this " +
					"machine connects from there. `weft` on this machine uses the unix socket admin.sock in the " +
					"data directory, and kumactl a token of `weft generate user-token`")
			}
			return nil
		},
	},
	{
		path: "apiServer.authn.tokens.bootstrapAdminToken", env: "KUMA_API_SERVER_AUTHN_TOKENS_BOOTSTRAP_ADMIN_TOKEN",
		fallback: "true",
		doc: "On the first start, store an administrator's user token, valid for ten years, as the GlobalSecret " +
			"`admin-user-token`.",
		set: boolean(func(s *Settings) *bool { return &s.BootstrapAdminToken }),
	},
	{
		path: "audit.output", env: "KUMA_AUDIT_OUTPUT", fallback: string(AuditFile),
		doc: "The output of the audit log, which records writes, generated tokens and reads of Secrets. `file`: " +
			"`audit.log` in the data directory. `stdout`: the standard output. `off`: no audit log.",
		set: func(s *Settings, v string) error {
			s.Audit.Output = AuditOutput(v)
			if !slices.Contains([]AuditOutput{AuditFile, AuditStdout, AuditOff}, s.Audit.Output) {
				return errors.New("is not a place of the audit log; use file, stdout or off")
			}
			return nil
		},
	},
	{
		path: "audit.maxSize", env: "KUMA_AUDIT_MAX_SIZE", fallback: "100",
		doc: "The size in MiB, 1 to 10000, at which the file is rotated to `audit.log.1`, `audit.log.1` to " +
			"`audit.log.2`, and so on.",
		set: number(1, 10_000, func(s *Settings) *int { return &s.Audit.MaxSize }),
	},
	{
		path: "audit.keep", env: "KUMA_AUDIT_KEEP", fallback: "10",
		doc: "The number of rotated files that are kept, 0 to 1000.",
		set: number(0, 1000, func(s *Settings) *int { return &s.Audit.Keep }),
	},
	{
		path: "dpServer.interface", env: "KUMA_DP_SERVER_INTERFACE", fallback: "0.0.0.0",
		doc: "The IP address on which the data plane server listens, for proxies and their agents.",
		set: address(func(s *Settings) *string { return &s.DataPlane.Interface }),
	},
	{
		path: "dpServer.port", env: "KUMA_DP_SERVER_PORT", fallback: "5678",
		doc: "The port of the data plane server, with TLS; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.DataPlane.Port }),
	},
	{
		path: "dpServer.drainTime", env: "KUMA_DP_SERVER_DRAIN_TIME", fallback: "5s",
		doc: "The drain time, `2s` to `20s`: how long an unused resource stays after the ack of its last client. It " +
			"applies to drained listeners with their permissions, SNI routes, former SANs and certificates, and " +
			"stopping proxies. A request that a client's proxy sent before its ack, and that arrives after the drain " +
			"time, may fail. A proxy stops within 85 seconds with the longest drain time. Revoked permissions, " +
			"denies and evictions take effect at once ([draining](defaults.md#draining)).",
		set: func(s *Settings, v string) (err error) {
			if s.DrainTime, err = time.ParseDuration(v); err != nil || s.DrainTime < 2*time.Second ||
				s.DrainTime > 20*time.Second {
				return errors.New("is not a duration from 2s to 20s, such as 5s")
			}
			return nil
		},
	},
	{
		path: "diagnostics.serverInterface", env: "KUMA_DIAGNOSTICS_SERVER_INTERFACE", fallback: "0.0.0.0",
		doc: "The IP address on which health and diagnostics listen.",
		set: address(func(s *Settings) *string { return &s.Diagnostics.Interface }),
	},
	{
		path: "diagnostics.serverPort", env: "KUMA_DIAGNOSTICS_SERVER_PORT", fallback: "5680",
		doc: "The port of health (`/ready`) and diagnostics; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.Diagnostics.Port }),
	},
	{
		path: "interCp.catalog.instanceAddress", env: "KUMA_INTER_CP_CATALOG_INSTANCE_ADDRESS",
		doc: "The IP address at which the other replicas reach this one, with a store that replicas share. Empty: " +
			"the first address of the machine.",
		set: func(s *Settings, v string) error {
			if v == "" {
				return nil
			}
			return address(func(s *Settings) *string { return &s.ReplicaQueries.Address })(s, v)
		},
	},
	{
		path: "interCp.server.port", env: "KUMA_INTER_CP_SERVER_PORT", fallback: "5683",
		doc: "The port at which replicas that share a store (PostgreSQL, Kubernetes) serve each other, with mutual " +
			"TLS; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.ReplicaQueries.Port }),
	},
	{
		path: "defaults.skipMeshCreation", env: "KUMA_DEFAULTS_SKIP_MESH_CREATION", fallback: "false",
		doc: "On the first start, do not create the mesh `default`.",
		set: boolean(func(s *Settings) *bool { return &s.SkipMeshCreation }),
	},
	{
		path: "defaults.skipHostnameGenerators", env: "KUMA_DEFAULTS_SKIP_HOSTNAME_GENERATORS", fallback: "false",
		doc: "On the first start, do not create the HostnameGenerators of `NAME.svc.mesh.local`, " +
			"`NAME.svc.ZONE.mesh.local`, `NAME.mzsvc.mesh.local` and `NAME.extsvc.mesh.local`.",
		set: boolean(func(s *Settings) *bool { return &s.SkipHostnameGenerators }),
	},
	{
		path: "defaults.mesh", env: "KUMA_DEFAULTS_MESH", fallback: "",
		doc: "The mesh of a Dataplane whose agent states none (`default` where this is empty). It is also the mesh " +
			"that gives ZoneEgresses their identity; this needs the setting only where there are several meshes " +
			"([egress identity](operations/egress-identity.md)).",
		set: optional(label(func(s *Settings) *string { return &s.DefaultMesh })),
	},
	{
		path: "ipam.meshService.cidr", env: "KUMA_IPAM_MESH_SERVICE_CIDR", fallback: "241.0.0.0/8",
		doc: "The range of the virtual IPs of MeshServices. Assigned addresses stay when it changes.",
		set: network(func(s *Settings) *netip.Prefix { return &s.MeshServiceCIDR }),
	},
	{
		path: "ipam.meshMultiZoneService.cidr", env: "KUMA_IPAM_MESH_MULTI_ZONE_SERVICE_CIDR", fallback: "243.0.0.0/8",
		doc: "The range of the virtual IPs of MeshMultiZoneServices, separate in each zone. Assigned addresses stay " +
			"when it changes.",
		set: network(func(s *Settings) *netip.Prefix { return &s.MeshMultiZoneServiceCIDR }),
	},
	{
		path: "ipam.meshExternalService.cidr", env: "KUMA_IPAM_MESH_EXTERNAL_SERVICE_CIDR", fallback: "242.0.0.0/8",
		doc: "The range of the virtual IPs of MeshExternalServices, separate in each zone. Assigned addresses stay " +
			"when it changes.",
		set: network(func(s *Settings) *netip.Prefix { return &s.MeshExternalServiceCIDR }),
	},
	{
		path: "ipam.ipv6.cidr", env: "KUMA_IPAM_IPV6_CIDR", fallback: "fd00:fd00::/96",
		doc: "The range of the IPv6 virtual IPs of services of all kinds, of at least 2^32 addresses (`/96`). The " +
			"last 32 bits of such an address are the IPv4 virtual IP of the service. Assigned addresses stay when it " +
			"changes.",
		set: networkIPv6(func(s *Settings) *netip.Prefix { return &s.IPv6CIDR }),
	},
	{
		path: "egress.allowedLocalNetworks", env: "KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS", list: true,
		doc: "Networks of local addresses that are allowed, such as `127.0.3.0/24`. Local addresses (loopback, " +
			"link-local, multicast, reserved, metadata) are otherwise rejected or excluded for endpoints of " +
			"MeshExternalServices, for servers and ingresses to which zone proxies forward, and for host names of " +
			"Dataplanes and zone ingresses. Set it where all machines of a mesh are one, to the same value on global " +
			"and in each zone ([external services](operations/external-services.md#local-addresses)).",
		set: networks(func(s *Settings) *[]netip.Prefix { return &s.LocalNetworks }),
	},
	{
		path: "dpServer.vouchedNetworks", env: "KUMA_DP_SERVER_VOUCHED_NETWORKS", list: true,
		doc: "Networks whose addresses every proxy may state for its inbounds, such as `10.0.0.0/8`. In other " +
			"networks an inbound is an endpoint only at an address for which its token, an operator or the " +
			"connection of its agent vouches ([members of services](operations/members.md)).",
		set: networks(func(s *Settings) *[]netip.Prefix { return &s.VouchedNetworks }),
	},
	{
		path: "dpServer.forwarders", env: "KUMA_DP_SERVER_FORWARDERS", list: true,
		doc: "Networks of load balancers and NAT gateways by which agents connect. Such an address vouches for no " +
			"proxy: the tokens of those proxies name their addresses ([members of " +
			"services](operations/members.md)).",
		set: networks(func(s *Settings) *[]netip.Prefix { return &s.Forwarders }),
	},
	{
		path: "dpServer.loopbackVouches", env: "KUMA_DP_SERVER_LOOPBACK_VOUCHES", fallback: "true",
		doc: "An agent that connects over the loopback interface may state each address of the control plane's " +
			"machine for its inbounds, and one on the machine of another replica the address from which it connects. " +
			"Set it to false where other users of these machines run proxies: their addresses then vouch for no " +
			"proxy.",
		set: boolean(func(s *Settings) *bool { return &s.LoopbackVouches }),
	},
	{
		path: "proxyPatches.permittedTypes", env: "KUMA_PROXY_PATCHES_PERMITTED_TYPES", list: true,
		doc: "Types of Envoy extensions that MeshProxyPatches of every writer may have beyond the harmless ones, by " +
			"their full names, such as `envoy.extensions.filters.http.lua.v3.Lua`. The writer of a patch with such a " +
			"type runs its code in proxies. Set it to the same value on global and in each zone ([changes of Envoy " +
			"resources](operations/proxy-patches.md#types)).",
		set: typeNames(func(s *Settings) *[]string { return &s.PatchTypes }),
	},
	{
		path: "hostNames.resolvers", env: "KUMA_HOST_NAMES_RESOLVERS", list: true,
		doc: "The DNS resolvers, IP addresses with or without a port, for host names of the zone's Dataplanes and of " +
			"other zones' ingresses. Empty: those of `/etc/resolv.conf`. See [host names as " +
			"addresses](operations/host-names.md).",
		set: resolvers(func(s *Settings) *[]netip.AddrPort { return &s.Resolvers }),
	},
	{
		path: "hostNames.drainTime", env: "KUMA_HOST_NAMES_DRAIN_TIME", fallback: "30s",
		doc: "How long, `0s` to `1h`, clients keep using an address after its host name no longer resolves to it.",
		set: duration(0, time.Hour, func(s *Settings) *time.Duration { return &s.HostNameDrain }),
	},
}

// resolvers parses a list of DNS servers.
func resolvers(field func(*Settings) *[]netip.AddrPort) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = nil
		for _, text := range splitList(v) {
			at, err := netip.ParseAddrPort(text)
			if address, bare := netip.ParseAddr(text); bare == nil {
				at, err = netip.AddrPortFrom(address, 53), nil
			}
			if err != nil || at.Port() == 0 {
				return fmt.Errorf(
					"has %q, which is not an IP address with or without a port, such as 10.0.0.2 or 10.0.0.2:53", text)
			}
			*field(s) = append(*field(s), at)
		}
		return nil
	}
}

// networks parses a list of networks.
func networks(field func(*Settings) *[]netip.Prefix) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = nil
		for _, text := range splitList(v) {
			prefix, err := netip.ParsePrefix(text)
			if err != nil || prefix != prefix.Masked() {
				return fmt.Errorf("has %q, which is not a network such as 127.0.3.0/24", text)
			}
			*field(s) = append(*field(s), prefix)
		}
		return nil
	}
}

// network parses an IPv4 network.
func network(field func(*Settings) *netip.Prefix) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		prefix, err := netip.ParsePrefix(v)
		if err != nil || prefix != prefix.Masked() || !prefix.Addr().Is4() || prefix.Bits() > 30 {
			return errors.New("is not an IPv4 network of at least four addresses, such as 241.0.0.0/8")
		}
		if at, of := unroutable(prefix); of != "" {
			return fmt.Errorf("has addresses of %s (%s), which no machine routes; use a network such as 241.0.0.0/8",
				at, of)
		}
		*field(s) = prefix
		return nil
	}
}

// unroutableNetworks are the networks to which no machine sends a connection of an application. The rest of 240.0.0.0/4
// is reserved, and routed: the default ranges are there.
var unroutableNetworks = []struct {
	at netip.Prefix
	of string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "the own machine"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/127"), "the own machine"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "mapped IPv4"},
	{netip.MustParsePrefix("fe80::/10"), "a link"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// unroutable returns a network without routes with which a network shares addresses, and what it is of; "" without one.
func unroutable(network netip.Prefix) (at netip.Prefix, of string) {
	for _, n := range unroutableNetworks {
		if n.at.Overlaps(network) {
			return n.at, n.of
		}
	}
	return netip.Prefix{}, ""
}

// networkIPv6 parses an IPv6 network whose addresses can embed an IPv4 address.
func networkIPv6(field func(*Settings) *netip.Prefix) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		prefix, err := netip.ParsePrefix(v)
		if err != nil || prefix != prefix.Masked() || !prefix.Addr().Is6() || prefix.Bits() > 96 {
			return errors.New("is not an IPv6 network of 96 bits or less, such as fd00:fd00::/96")
		}
		if at, of := unroutable(prefix); of != "" {
			return fmt.Errorf("has addresses of %s (%s), which no machine routes; use a network such as fd00:fd00::/96",
				at, of)
		}
		*field(s) = prefix
		return nil
	}
}

func text(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		return nil
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// label parses an RFC 1035 label.
func label(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		if !dnsLabel.MatchString(v) {
			return errors.New("is not a DNS label: lower-case letters, digits and \"-\", beginning with a letter, at " +
				"most 63 characters")
		}
		return nil
	}
}

// optional accepts an empty value too.
func optional(set func(*Settings, string) error) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		if v == "" {
			return nil
		}
		return set(s, v)
	}
}

func address(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = v
		if _, err := netip.ParseAddr(v); err != nil {
			return errors.New("is not an IP address; 0.0.0.0 means every IPv4 interface, :: every one")
		}
		return nil
	}
}

func port(field func(*Settings) *uint16) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return errors.New("is not a port, 0 to 65535")
		}
		*field(s) = uint16(n)
		return nil
	}
}

func number(least, most int, field func(*Settings) *int) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return fmt.Errorf("is not a number from %d to %d", least, most)
		}
		*field(s) = n
		return nil
	}
}

// duration parses a duration within bounds.
func duration(least, most time.Duration, field func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("is not a duration from %s to %s, such as 15s", least, most)
		}
		*field(s) = d
		return nil
	}
}

func boolean(field func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		*field(s) = b
		return nil
	}
}

var (
	byPath = index(func(s setting) string { return s.path })
	byEnv  = variables()
)

// variables returns the settings by the names of their variables.
func variables() map[string]setting {
	named := index(func(s setting) string { return s.env })
	for _, s := range all {
		if s.alias != "" {
			named[s.alias] = s
		}
	}
	return named
}

func index(key func(setting) string) map[string]setting {
	m := map[string]setting{}
	for _, s := range all {
		m[key(s)] = s
	}
	if len(m) != len(all) {
		panic(fmt.Sprintf("settings: %d settings share %d names", len(all), len(m)))
	}
	return m
}

// typeName matches the full name of a message.
var typeName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+(\.[A-Z][A-Za-z0-9_]*)+$`)

// typeNames parses a list of full names of messages.
func typeNames(field func(*Settings) *[]string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		*field(s) = splitList(v)
		for _, name := range *field(s) {
			if !typeName.MatchString(name) {
				return fmt.Errorf("has %q, which is not the full name of a type, such as "+
					"envoy.extensions.filters.http.lua.v3.Lua", name)
			}
		}
		return nil
	}
}
