package settings

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"
)

// Mode is the role of a control plane.
type Mode string

const (
	// Zone is the mode of a control plane for the proxies of one zone, alone or joined with others.
	Zone Mode = "zone"
	// Global is the mode of a control plane that joins zones, and serves no proxy.
	Global Mode = "global"
)

// Join is the configuration by which a zone joins a global control plane.
type Join struct {
	// GlobalAddress is "grpcs://HOST:PORT"; empty for a zone that is not joined.
	GlobalAddress string
	// CAFile has the CA certificates, in PEM, for the global control plane's certificate; empty: the machine's.
	CAFile string
	// Token is the zone token; if it is empty, TokenFile has it.
	Token, TokenFile string
}

// Host returns "HOST:PORT" of the global control plane.
func (j *Join) Host() string {
	address, _ := url.Parse(j.GlobalAddress) // it was checked
	return address.Host
}

// IsJoined reports whether this is a zone that has joined a global control plane.
func (s *Settings) IsJoined() bool { return s.Join.GlobalAddress != "" }

// ZoneSync is the server of a global control plane for zones, over TLS.
type ZoneSync struct {
	Address
	CertFile, KeyFile string // empty: the certificate of the server for proxies
	// Expiry is the time after which the ingresses of a disconnected zone are not used by others any more; 0: no limit.
	Expiry time.Duration
}

// defaultSyncPort is the default port of a global control plane.
const defaultSyncPort = "5685"

// zoneSettings are the settings of multi-zone deployments.
var zoneSettings = []setting{
	{
		path: "mode", env: "KUMA_MODE", fallback: string(Zone),
		doc: "The role of this control plane. `zone`: it serves the proxies of one zone. `global`: it joins zones " +
			"into one mesh and serves no proxies. Flag: `--mode`. See [many zones](operations/multizone.md).",
		set: func(s *Settings, v string) error {
			switch s.Mode = Mode(v); s.Mode {
			case Zone, Global:
				return nil
			case "standalone":
				return errors.New("is a mode of older releases of Kuma; leave it out: a zone that joins no global " +
					"control plane runs alone")
			case "remote":
				return errors.New("is a mode of older releases of Kuma; use zone")
			}
			return errors.New("is not a mode; use zone or global")
		},
	},
	{
		path: "multizone.zone.name", env: "KUMA_MULTIZONE_ZONE_NAME", fallback: "default",
		doc: "The zone's name, a DNS label of at most 63 characters; without meaning for a global control plane. " +
			"SPIFFE IDs and resource names contain it, so a later change changes them too. Flag: `--zone`.",
		set: label(func(s *Settings) *string { return &s.ZoneName }),
	},
	{
		path: "multizone.zone.globalAddress", env: "KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS",
		doc: "The global control plane that the zone joins, `grpcs://HOST:PORT`, by default port 5685. Empty: the " +
			"zone runs alone. Flag: `--global-address`.",
		set: func(s *Settings, v string) (err error) {
			s.Join.GlobalAddress, err = globalAddress(v)
			return err
		},
	},
	{
		path: "multizone.zone.kds.rootCaFile", env: "KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE",
		doc: "CA certificates in PEM that verify the certificate of the global control plane, read again when they " +
			"change. Empty: those of the machine. Flag: `--global-ca-file`.",
		set: text(func(s *Settings) *string { return &s.Join.CAFile }),
	},
	{
		path: "multizone.zone.kds.auth.cpTokenPath", env: "KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH",
		doc: "The file with the zone token that authenticates the zone, read at each connection. Flag: " +
			"`--zone-token-file`.",
		set: text(func(s *Settings) *string { return &s.Join.TokenFile }),
	},
	{
		path: "multizone.zone.kds.auth.cpTokenInline", env: "KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_INLINE",
		secret: true,
		doc:    "The zone token itself, instead of a file.",
		set:    text(func(s *Settings) *string { return &s.Join.Token }),
	},
	{
		path: "multizone.global.kds.grpcInterface", env: "KUMA_MULTIZONE_GLOBAL_KDS_GRPC_INTERFACE",
		fallback: "0.0.0.0",
		doc:      "The IP address on which a global control plane listens for zones.",
		set:      address(func(s *Settings) *string { return &s.ZoneSync.Interface }),
	},
	{
		path: "multizone.global.kds.grpcPort", env: "KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", fallback: defaultSyncPort,
		doc: "The port at which a global control plane listens for zones, with TLS; 0 selects a free port.",
		set: port(func(s *Settings) *uint16 { return &s.ZoneSync.Port }),
	},
	{
		path: "multizone.global.kds.tlsCertFile", env: "KUMA_MULTIZONE_GLOBAL_KDS_TLS_CERT_FILE",
		doc: "The certificate chain in PEM that a global control plane presents to zones, read again when it " +
			"changes. Empty: that of `general.tlsCertFile`; where that is empty too, one of its own CA, `ca.crt` in " +
			"the data directory.",
		set: text(func(s *Settings) *string { return &s.ZoneSync.CertFile }),
	},
	{
		path: "multizone.global.kds.tlsKeyFile", env: "KUMA_MULTIZONE_GLOBAL_KDS_TLS_KEY_FILE",
		doc: "The private key of that certificate in PEM.",
		set: text(func(s *Settings) *string { return &s.ZoneSync.KeyFile }),
	},
	{
		path: "multizone.global.zoneExpiry", env: "KUMA_MULTIZONE_GLOBAL_ZONE_EXPIRY", fallback: "0s",
		doc: "The time, such as `30m`, after which other zones stop using the ingresses of a disconnected zone. " +
			"`0s`: never. A zone that is disconnected only from global still serves, and a value above 0 would stop " +
			"the use of its ingresses without need.",
		set: func(s *Settings, v string) (err error) {
			if s.ZoneSync.Expiry, err = time.ParseDuration(v); err != nil || s.ZoneSync.Expiry < 0 {
				return errors.New("is not a duration such as 30m, or 0s for none")
			}
			return nil
		},
	},
}

// globalAddress adds the default port.
func globalAddress(v string) (string, error) {
	if v == "" {
		return "", nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "grpcs" || u.Hostname() == "" || u.Path+u.RawQuery+u.Fragment != "" || u.User != nil {
		return "", errors.New("is not the address of a global control plane; write grpcs://HOST:PORT")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultSyncPort)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return "", errors.New("has a port that is none; use 1 to 65535")
	}
	return u.String(), nil
}

// checkZones returns an error for zone settings that contradict each other. It clears the zone's name of a global
// control plane, which is in no zone.
func (s *Settings) checkZones() error {
	j := &s.Join
	switch {
	case s.Mode == Global && s.IsJoined():
		return errors.New(
			"multizone.zone.globalAddress is what a zone joins, and mode is global: leave one of them out")
	case s.IsJoined() && (j.Token == "") == (j.TokenFile == ""):
		return errors.New("multizone.zone.globalAddress needs the zone's token: set " +
			"multizone.zone.kds.auth.cpTokenPath (--zone-token-file) or multizone.zone.kds.auth.cpTokenInline, and " +
			"not both; `weft generate zone-token` on the global control plane makes one")
	case (s.ZoneSync.CertFile == "") != (s.ZoneSync.KeyFile == ""):
		return errors.New("multizone.global.kds.tlsCertFile and multizone.global.kds.tlsKeyFile belong together: set " +
			"both, or neither to use the certificate of the server for proxies")
	}
	if s.Mode == Global {
		s.ZoneName = ""
	}
	return nil
}
