package settings

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Postgres is where the PostgreSQL database is.
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

var tlsModes = []string{"disable", "verifyNone", "verifyCa", "verifyFull"}

// storeSettings are those of what keeps the resources.
var storeSettings = []setting{
	{
		path: "store.type", env: "KUMA_STORE_TYPE", fallback: string(SQLite),
		doc: "The type of the store. `sqlite`: a file in the data directory. `postgres`: a PostgreSQL database, " +
			"which several replicas may share. `memory`: lost on restart, for experiments. See [the " +
			"store](operations/store.md).",
		set: func(s *Settings, v string) error {
			s.Store = StoreType(v)
			if !slices.Contains([]StoreType{SQLite, PostgreSQL, Memory}, s.Store) {
				return errors.New("is not a store of this release; use sqlite, postgres or memory")
			}
			return nil
		},
	},
	{
		path: "store.encryption.keyFile", env: "KUMA_STORE_ENCRYPTION_KEY_FILE",
		doc: "The file with the keys that encrypt Secrets, one per line; the first key encrypts. Empty: " +
			"`secrets.key` in the data directory, which is generated where it is missing. With `store.type: " +
			"postgres` the setting is required.",
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
}

// checkStore refuses what is wrong with the store's settings taken together.
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
	if (s.Postgres.CertFile == "") != (s.Postgres.KeyFile == "") {
		faults = append(faults,
			errors.New(
				"store.postgres.tls.certPath and store.postgres.tls.keyPath belong together: set both or neither"))
	}
	return errors.Join(faults...)
}
