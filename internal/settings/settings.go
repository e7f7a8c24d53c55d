// Package settings reads the settings of a control plane. A flag takes precedence over a `KUMA_*` variable, a variable
// over a YAML file, and the file over the default.
//
// An unknown key in the file is an error, and so is an unknown variable. Variables of other programs are ignored.
// Keys and variables of Kuma without effect here produce a warning, or an error where they protect something. The list
// of settings is [all]; parsing, validation, the documentation page and [Settings.Effective] are derived from it.
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
	ZoneName string   // empty for a global control plane
	Join     Join     // of a zone
	ZoneSync ZoneSync // of a global control plane
	// Environment is where the zone's proxies run. It is that of the store.
	Environment Environment
	Store       StoreType
	Postgres    Postgres   // if Store is PostgreSQL
	Kubernetes  Kubernetes // if Store is KubernetesAPI
	// EncryptionKeyFile is empty if the control plane generates a key in DataDir.
	EncryptionKeyFile string
	// DataDir is the directory of all files that must survive a restart.
	DataDir string

	API         OptionalAddress // the HTTP API
	APIOverTLS  APIOverTLS
	DataPlane   Address // gRPC for proxies and their agents, over TLS
	Diagnostics Address
	// ReplicaQueries is where replicas that share a store serve each other.
	ReplicaQueries ReplicaQueries

	// BootstrapAdminToken makes the first start generate an administrator's token.
	BootstrapAdminToken bool
	// Access has the users and groups that are allowed each action.
	Access access.Rules
	Audit  Audit
	// TLSCertFile and TLSKeyFile are the server's certificate; both are empty if the control plane generates one.
	TLSCertFile, TLSKeyFile string

	SkipMeshCreation bool
	// SkipHostnameGenerators omits the HostnameGenerators of the first start.
	SkipHostnameGenerators bool
	// DefaultMesh is the mesh of Dataplanes without one, and the mesh whose identity ZoneEgresses have; empty: not set.
	DefaultMesh string
	// MeshServiceCIDR is the range of the virtual IPs of MeshServices, MeshMultiZoneServiceCIDR that of
	// MeshMultiZoneServices, and MeshExternalServiceCIDR that of MeshExternalServices. IPv6CIDR is that of the IPv6
	// virtual IPs of all of them.
	MeshServiceCIDR, MeshMultiZoneServiceCIDR, MeshExternalServiceCIDR, IPv6CIDR netip.Prefix
	// DrainTime is the time for which a resource that is not used any more stays after the last client's ack.
	DrainTime time.Duration
	// LocalNetworks are networks of a machine itself, its link or a cloud's metadata service that MeshExternalServices
	// may use.
	LocalNetworks []netip.Prefix
	// VouchedNetworks are networks whose addresses every proxy may state, Forwarders those of load balancers in front
	// of the control plane, whose addresses vouch for no proxy.
	VouchedNetworks, Forwarders []netip.Prefix
	// LoopbackVouches lets an agent that connects over the loopback interface state each address of the machine.
	LoopbackVouches bool
	// PatchTypes are the types of extensions that MeshProxyPatches may have beyond the harmless ones.
	PatchTypes []string
	// Resolvers resolve the host names of Dataplanes and of zone ingresses; empty: those of /etc/resolv.conf.
	Resolvers []netip.AddrPort
	// HostNameDrain is the time for which an address stays in use after its host name stopped resolving to it.
	HostNameDrain time.Duration
	LogLevel      slog.Level

	// Admission and Injector are the settings of Kubernetes.
	Admission AdmissionServer
	Injector  Injector
	Pods      Pods

	effective []Value
}

// StoreType is the kind of the store of the resources.
type StoreType string

// The store types.
const (
	SQLite     StoreType = "sqlite"   // a file under DataDir
	PostgreSQL StoreType = "postgres" // a database that several replicas may share
	Memory     StoreType = "memory"   // lost with the process
	// KubernetesAPI is the API server of a Kubernetes cluster, which several replicas may share.
	KubernetesAPI StoreType = "kubernetes"
)

// Environment is the kind of the machines of a zone.
type Environment string

// The environments.
const (
	OnUniversal  Environment = "universal"  // machines, where users write Dataplanes
	OnKubernetes Environment = "kubernetes" // a cluster, where resources are objects in namespaces
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

// ReplicaQueries configures the queries between replicas.
type ReplicaQueries struct {
	Address string // at which the others reach this replica; empty: the first address of the machine
	Port    uint16
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

// APIOverTLS is the configuration of the API over TLS.
type APIOverTLS struct {
	OptionalAddress
	CertFile, KeyFile string // empty: the certificate of the server for proxies
	// ClientCAFile and ClientCADir have the CAs of users' certificates; without them, certificates authenticate no
	// user.
	ClientCAFile, ClientCADir string
	RequireClientCert         bool
}

// Value is one effective setting.
type Value struct {
	Path   string `json:"path"`   // in the YAML file, "apiServer.http.port"
	Value  string `json:"value"`  // asterisks for a secret
	Source string `json:"source"` // "default", the file's name, the variable's name or "flag"
}

const sourceDefault = "default"

// Effective returns every setting with its source, in the order of the documentation.
func (s *Settings) Effective() []Value { return s.effective }

// Load returns the effective settings. An empty file means none. Environ has the form of [os.Environ]. Flags has the
// given flags by YAML path.
//
// The error names every invalid setting with its source. The warnings are sentences.
func Load(file string, environ []string, flags map[string]string) (*Settings, []string, error) {
	given := map[string]Value{} // by path; later sources replace earlier ones
	var faults []error
	var warnings []string
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("settings file: %w", err)
		}
		values, without, err := parseFile(file, text)
		warnings, faults = append(warnings, without...), append(faults, err)
		merge(given, values)
	}
	values, without, err := parseEnviron(environ)
	warnings, faults = append(warnings, without...), append(faults, err)
	merge(given, values)
	for path, value := range flags {
		given[path] = Value{Path: path, Value: value, Source: "flag"}
	}

	s := &Settings{Access: access.Rules{}}
	without, err = s.apply(given)
	warnings, faults = append(warnings, without...), append(faults, err, s.check())
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

// noEffect is the reason why a value of a setting has no effect and yet does no harm. It continues a sentence that
// starts with the value.
type noEffect string

func (n noEffect) Error() string { return string(n) }

// apply sets every setting to its given value or its default. The warnings name values without effect.
func (s *Settings) apply(given map[string]Value) (warnings []string, fault error) {
	var faults []error
	for _, item := range all {
		v, ok := given[item.path]
		if !ok {
			v = Value{Path: item.path, Value: item.fallback, Source: sourceDefault}
		}
		var without noEffect
		if err := item.set(s, v.Value); errors.As(err, &without) {
			warnings = append(warnings, fmt.Sprintf("%s (%s): %q %s", item.path, v.Source, v.Value, without))
			v.Value = item.fallback
		} else if err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %q %w", item.path, v.Source, v.Value, err))
		}
		if item.secret && v.Value != "" {
			v.Value = "***"
		}
		s.effective = append(s.effective, v)
	}
	return warnings, errors.Join(faults...)
}

// check returns an error for settings that contradict each other.
func (s *Settings) check() error {
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		return errors.New("general.tlsCertFile and general.tlsKeyFile belong together: set both, or neither to have " +
			"a certificate made")
	}
	return errors.Join(s.APIOverTLS.check(s.API.Enabled), s.checkStore(), s.checkZones(), s.checkMeshRules())
}

func (a *APIOverTLS) check(plain bool) error {
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("apiServer.https.tlsCertFile and apiServer.https.tlsKeyFile belong together: set both, or " +
			"neither to use the certificate of the server for proxies")
	case a.RequireClientCert && a.ClientCAFile == "" && a.ClientCADir == "":
		return errors.New(
			"apiServer.https.requireClientCert rejects every client without apiServer.https.tlsCaFile or " +
				"apiServer.auth.clientCertsDir: name the CAs of the certificates")
	case !plain && !a.Enabled:
		return errors.New(
			"apiServer.http.enabled and apiServer.https.enabled are both false: without its API no client " +
				"reaches the control plane")
	}
	return nil
}

// Variable returns the environment variable and the default of a setting.
func Variable(path string) (variable, fallback string, ok bool) {
	found, ok := byPath[path]
	return found.env, found.fallback, ok
}
