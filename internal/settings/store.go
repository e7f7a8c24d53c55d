package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Postgres is the address of the PostgreSQL database.
type Postgres struct {
	Host           string // a name, an address, or the directory of a Unix socket
	Port           uint16
	User           string
	Password       string
	Database       string
	ConnectTimeout time.Duration
	MaxConnections int
	TLSMode        string // "disable", "verifyNone", "verifyCa" or "verifyFull"
	// CAFile, CertFile and KeyFile are in PEM; each may be empty.
	CAFile, CertFile, KeyFile string
}

// Kubernetes is the store on the API server of a Kubernetes cluster.
type Kubernetes struct {
	// SystemNamespace has the objects of the control plane itself.
	SystemNamespace string
	// LeaseDuration is the time without a renewal after which the other replicas take a replica for dead, and
	// RenewDeadline the shorter time after which a leader without a renewal stops leading.
	LeaseDuration, RenewDeadline time.Duration
}

var tlsModes = []string{"disable", "verifyNone", "verifyCa", "verifyFull"}

// storeSettings are the settings of the store.
var storeSettings = []setting{
	{
		path: "store.type", env: "KUMA_STORE_TYPE", fallback: string(SQLite),
		doc: "The type of the store. `sqlite`: a file in the data directory. `postgres`: a PostgreSQL database, " +
			"which several replicas may share. `kubernetes`: the API server of a cluster, which several replicas may " +
			"share; it needs `environment: kubernetes`. `memory`: lost on restart, for experiments. See [the " +
			"store](operations/store.md) and [Kubernetes](kubernetes.md).",
		set: func(s *Settings, v string) error {
			s.Store = StoreType(v)
			if !slices.Contains([]StoreType{SQLite, PostgreSQL, Memory, KubernetesAPI}, s.Store) {
				return errors.New("is not a store of this release; use sqlite, postgres, kubernetes or memory")
			}
			return nil
		},
	},
	{
		path: "store.encryption.keyFile", env: "KUMA_STORE_ENCRYPTION_KEY_FILE",
		doc: "The file with the keys that encrypt Secrets, one per line; the first key encrypts. Empty: " +
			"`secrets.key` in the data directory, which is generated where it is missing. With `store.type: " +
			"postgres` the setting is required. With `store.type: kubernetes` the keys encrypt the Secrets of " +
			"backups only.",
		set: text(func(s *Settings) *string { return &s.EncryptionKeyFile }),
	},
	{
		path: "store.postgres.host", env: "KUMA_STORE_POSTGRES_HOST", fallback: "127.0.0.1",
		doc: "The host of PostgreSQL: a name, an address, or the directory of a Unix socket.",
		set: text(func(s *Settings) *string { return &s.Postgres.Host }),
	},
	{
		path: "store.postgres.port", env: "KUMA_STORE_POSTGRES_PORT", fallback: "5432",
		doc: "The port of PostgreSQL.",
		set: port(func(s *Settings) *uint16 { return &s.Postgres.Port }),
	},
	{
		path: "store.postgres.user", env: "KUMA_STORE_POSTGRES_USER", fallback: "weft",
		doc: "The PostgreSQL user; it needs the permission to create tables.",
		set: text(func(s *Settings) *string { return &s.Postgres.User }),
	},
	{
		path: "store.postgres.password", env: "KUMA_STORE_POSTGRES_PASSWORD", secret: true,
		doc: "The password of the PostgreSQL user. It is never shown.",
		set: text(func(s *Settings) *string { return &s.Postgres.Password }),
	},
	{
		path: "store.postgres.dbName", env: "KUMA_STORE_POSTGRES_DB_NAME", fallback: "weft",
		doc: "The name of the database. The control plane creates its tables, and migrates those of an older release.",
		set: text(func(s *Settings) *string { return &s.Postgres.Database }),
	},
	{
		path: "store.postgres.connectionTimeout", env: "KUMA_STORE_POSTGRES_CONNECTION_TIMEOUT", fallback: "5",
		doc: "The timeout for opening a connection, in seconds.",
		set: func(s *Settings, v string) error {
			seconds, err := strconv.ParseUint(v, 10, 16)
			if err != nil || seconds == 0 {
				return errors.New("is not a number of seconds, 1 or more")
			}
			s.Postgres.ConnectTimeout = time.Duration(seconds) * time.Second
			return nil
		},
	},
	{
		path: "store.postgres.maxOpenConnections", env: "KUMA_STORE_POSTGRES_MAX_OPEN_CONNECTIONS", fallback: "50",
		doc: "The maximum number of connections of a replica, 3 or more.",
		set: func(s *Settings, v string) error {
			n, err := strconv.ParseUint(v, 10, 16)
			if err != nil || n < 3 {
				return errors.New(
					"is not a number of connections, 3 or more: one writes, one listens and the rest read")
			}
			s.Postgres.MaxConnections = int(n)
			return nil
		},
	},
	{
		path: "store.postgres.tls.mode", env: "KUMA_STORE_POSTGRES_TLS_MODE", fallback: "disable",
		doc: "The TLS mode. `disable`: no TLS. `verifyNone`: TLS without verification (insecure). `verifyCa`: the CA " +
			"must have signed the server's certificate. `verifyFull`: the certificate must also match the host.",
		set: func(s *Settings, v string) error {
			s.Postgres.TLSMode = v
			if !slices.Contains(tlsModes, v) {
				return errors.New("is not a TLS mode; use " + strings.Join(tlsModes, ", "))
			}
			return nil
		},
	},
	{
		path: "store.postgres.tls.caPath", env: "KUMA_STORE_POSTGRES_TLS_CA_PATH",
		doc: "The CAs in PEM that verify the server's certificate. Empty: those of the system.",
		set: text(func(s *Settings) *string { return &s.Postgres.CAFile }),
	},
	{
		path: "store.postgres.tls.certPath", env: "KUMA_STORE_POSTGRES_TLS_CERT_PATH",
		doc: "The control plane's client certificate for PostgreSQL, in PEM.",
		set: text(func(s *Settings) *string { return &s.Postgres.CertFile }),
	},
	{
		path: "store.postgres.tls.keyPath", env: "KUMA_STORE_POSTGRES_TLS_KEY_PATH",
		doc: "The private key of that certificate in PEM.",
		set: text(func(s *Settings) *string { return &s.Postgres.KeyFile }),
	},
	{
		path: "store.kubernetes.systemNamespace", env: "KUMA_STORE_KUBERNETES_SYSTEM_NAMESPACE",
		fallback: "kuma-system",
		doc: "The namespace that has the objects of the control plane itself, its Leases, the Secrets of meshes, and " +
			"the resources whose name has no namespace. It must exist.",
		set: label(func(s *Settings) *string { return &s.Kubernetes.SystemNamespace }),
	},
	{
		path: "runtime.kubernetes.leaderElection.leaseDuration",
		env:  "KUMA_RUNTIME_KUBERNETES_LEADER_ELECTION_LEASE_DURATION", fallback: "15s",
		doc: "With `store.type: kubernetes`: the time, at least `3s`, after which the other replicas take a replica " +
			"for dead that has not renewed its Lease. Every replica needs the same value.",
		set: duration(3*time.Second, time.Hour,
			func(s *Settings) *time.Duration { return &s.Kubernetes.LeaseDuration }),
	},
	{
		path: "runtime.kubernetes.leaderElection.renewDeadline",
		env:  "KUMA_RUNTIME_KUBERNETES_LEADER_ELECTION_RENEW_DEADLINE", fallback: "10s",
		doc: "With `store.type: kubernetes`: the time after which a leader stops leading that could not renew its " +
			"Lease. It is at least a second shorter than the lease duration. A Lease is renewed after half of it, " +
			"and after 5 seconds at the latest.",
		set: duration(2*time.Second, time.Hour,
			func(s *Settings) *time.Duration { return &s.Kubernetes.RenewDeadline }),
	},
}

// checkStore returns an error for store settings that contradict each other.
func (s *Settings) checkStore() error {
	var faults []error
	if s.Store == SQLite && strings.TrimSpace(s.DataDir) == "" {
		faults = append(faults,
			errors.New("general.dataDir is empty: name a directory with --data-dir, or set KUMA_STORE_TYPE=memory to "+
				"keep nothing"))
	}
	if s.Store == PostgreSQL && s.EncryptionKeyFile == "" {
		faults = append(faults,
			errors.New("store.encryption.keyFile is empty, and PostgreSQL needs it, the same for every instance: "+
				"make one with `weft generate encryption-key > secrets.key`, keep a copy, and set "+
				"KUMA_STORE_ENCRYPTION_KEY_FILE"))
	}
	if (s.Store == KubernetesAPI) != (s.Environment == OnKubernetes) {
		faults = append(faults,
			fmt.Errorf("environment is %s and store.type is %s: set both to kubernetes (KUMA_ENVIRONMENT, "+
				"KUMA_STORE_TYPE), or neither", s.Environment, s.Store))
	}
	if k := s.Kubernetes; k.LeaseDuration-k.RenewDeadline < time.Second {
		faults = append(faults, fmt.Errorf("runtime.kubernetes.leaderElection.renewDeadline is %s, and must be at "+
			"least a second shorter than runtime.kubernetes.leaderElection.leaseDuration, %s: otherwise two replicas "+
			"may lead", k.RenewDeadline, k.LeaseDuration))
	}
	if (s.Postgres.CertFile == "") != (s.Postgres.KeyFile == "") {
		faults = append(faults,
			errors.New(
				"store.postgres.tls.certPath and store.postgres.tls.keyPath belong together: set both or neither"))
	}
	return errors.Join(faults...)
}
