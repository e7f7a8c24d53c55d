// Package settings reads what an operator sets of a control plane: flags over `KUMA_*` variables over a
// YAML file over defaults.
//
// What is not known is an error, never ignored in silence: a misspelled key in the file, a misspelled
// variable. Variables that are somebody else's are left alone, and those of Kuma that have no meaning
// here are answered with a warning. The one list of settings is [all]; parsing, checking, the
// documentation page and [Settings.Effective] follow from it.
package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"weft/internal/access"
)

// Settings are the effective settings of one control plane.
type Settings struct {
	Mode     Mode
	ZoneName string   // empty of a global control plane
	Join     Join     // of a zone
	ZoneSync ZoneSync // of a global control plane
	Store    StoreType
	Postgres Postgres // where Store is PostgreSQL
	// EncryptionKeyFile is empty where the control plane makes one in DataDir.
	EncryptionKeyFile string
	// DataDir is where everything that must survive a restart stands.
	DataDir string

	API         OptionalAddress // the HTTP API
	APIOverTLS  APIOverTLS
	DataPlane   Address // gRPC for proxies and their agents, over TLS
	Diagnostics Address

	// BootstrapAdminToken has the first start make a token of an administrator.
	BootstrapAdminToken bool
	// Access says who may do what.
	Access access.Rules
	Audit  Audit
	// TLSCertFile and TLSKeyFile are the server's own certificate; both are empty where the control
	// plane makes one.
	TLSCertFile, TLSKeyFile string

	SkipMeshCreation bool
	// SkipHostnameGenerators leaves out the HostnameGenerators of the first start.
	SkipHostnameGenerators bool
	// DefaultMesh is the mesh of a Dataplane that names none, and whose identity ZoneEgresses have; empty: it is
	// not set.
	DefaultMesh string
	// MeshServiceCIDR is the range of the virtual IPs of MeshServices, MeshMultiZoneServiceCIDR that of
	// MeshMultiZoneServices, and MeshExternalServiceCIDR that of MeshExternalServices.
	MeshServiceCIDR, MeshMultiZoneServiceCIDR, MeshExternalServiceCIDR netip.Prefix
	// DrainTime is how long what no client uses any more stays in place after the last client has acked that.
	DrainTime time.Duration
	// LocalNetworks are those that MeshExternalServices may name though they are of a machine itself, its link or a
	// cloud's metadata.
	LocalNetworks []netip.Prefix
	// Resolvers resolve the host names of Dataplanes and of zone ingresses; empty: those of /etc/resolv.conf.
	Resolvers []netip.AddrPort
	// HostNameDrain is how long an address stays in use after its host name no longer resolves to it.
	HostNameDrain time.Duration
	LogLevel      slog.Level

	effective []Value
}

// StoreType is the kind of the store of the resources.
type StoreType string

// The store types.
const (
	SQLite     StoreType = "sqlite"   // a file under DataDir
	PostgreSQL StoreType = "postgres" // a database that several replicas may share
	Memory     StoreType = "memory"   // lost with the process
)

// Address is the address of a listening server. Port 0 means any free port.
type Address struct {
	Interface string
	Port      uint16
}

// String returns the address in the form of net.Listen, HOST:PORT.
func (a Address) String() string {
	return net.JoinHostPort(a.Interface, strconv.Itoa(int(a.Port)))
}

// Audit configures the audit log.
type Audit struct {
	Output  AuditOutput
	MaxSize int // of one file, in MiB
	Keep    int // older files
}

// AuditOutput is the destination of the audit log.
type AuditOutput string

// The destinations of the audit log.
const (
	AuditFile   AuditOutput = "file" // audit.log under DataDir
	AuditStdout AuditOutput = "stdout"
	AuditOff    AuditOutput = "off"
)

// OptionalAddress is the address of a server that can be disabled.
type OptionalAddress struct {
	Enabled bool
	Address
}

// APIOverTLS is how the API is served over TLS.
type APIOverTLS struct {
	OptionalAddress
	CertFile, KeyFile string // empty: the certificate of the server for proxies
	// ClientCAFile and ClientCADir hold the CAs of users' certificates; without them no user has one.
	ClientCAFile, ClientCADir string
	RequireClientCert         bool
}

// Value is one effective setting.
type Value struct {
	Path   string `json:"path"`   // in the YAML file, "apiServer.http.port"
	Value  string `json:"value"`  // asterisks where it is secret
	Source string `json:"source"` // "default", the file's name, the variable's name or "flag"
}

// Effective answers every setting with where it came from, in the order of the documentation.
func (s *Settings) Effective() []Value { return s.effective }

// Load works out the effective settings. The file may be empty: none. Environ is as [os.Environ] gives
// it. Flags are values by YAML path, and hold only the flags that were given.
//
// The error names every wrong setting at once, with where it stands; the warnings are sentences.
func Load(file string, environ []string, flags map[string]string) (*Settings, []string, error) {
	given := map[string]Value{} // by path; later sources replace earlier ones
	var faults []error
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("settings file: %w", err)
		}
		values, err := parseFile(file, text)
		faults = append(faults, err)
		merge(given, values)
	}
	values, warnings, err := parseEnviron(environ)
	faults = append(faults, err)
	merge(given, values)
	for path, value := range flags {
		given[path] = Value{Path: path, Value: value, Source: "flag"}
	}

	s := &Settings{Access: access.Rules{}}
	faults = append(faults, s.apply(given), s.check())
	if err := errors.Join(faults...); err != nil {
		return nil, warnings, err
	}
	return s, warnings, nil
}

func merge(into map[string]Value, values []Value) {
	for _, v := range values {
		into[v.Path] = v
	}
}

// apply sets every setting, to what was given or to its default.
func (s *Settings) apply(given map[string]Value) error {
	var faults []error
	for _, item := range all {
		v, ok := given[item.path]
		if !ok {
			v = Value{Path: item.path, Value: item.fallback, Source: "default"}
		}
		if err := item.set(s, v.Value); err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %q %w", item.path, v.Source, v.Value, err))
		}
		if item.secret && v.Value != "" {
			v.Value = "***"
		}
		s.effective = append(s.effective, v)
	}
	return errors.Join(faults...)
}

// check refuses what is wrong with settings taken together.
func (s *Settings) check() error {
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		return errors.New("general.tlsCertFile and general.tlsKeyFile belong together: set both, or neither to have " +
			"a certificate made")
	}
	return errors.Join(s.APIOverTLS.check(s.API.Enabled), s.checkStore(), s.checkZones())
}

func (a *APIOverTLS) check(plain bool) error {
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("apiServer.https.tlsCertFile and apiServer.https.tlsKeyFile belong together: set both, or " +
			"neither to use the certificate of the server for proxies")
	case a.RequireClientCert && a.ClientCAFile == "" && a.ClientCADir == "":
		return errors.New("apiServer.https.requireClientCert lets nobody in without apiServer.https.tlsCaFile or " +
			"apiServer.auth.clientCertsDir: name the CAs of the certificates")
	case !plain && !a.Enabled:
		return errors.New("apiServer.http.enabled and apiServer.https.enabled are both false: without its API nobody " +
			"reaches the control plane")
	}
	return nil
}
