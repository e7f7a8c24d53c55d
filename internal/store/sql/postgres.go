package sql

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"weft/internal/store"
	"weft/internal/store/follow"
	"weft/resource"
)

// TLSMode is the extent to which a connection to PostgreSQL verifies the server.
type TLSMode string

// The TLS modes, from the weakest to the strongest.
const (
	TLSDisable    TLSMode = "disable"    // plaintext
	TLSVerifyNone TLSMode = "verifyNone" // TLS without verification of the server's certificate
	TLSVerifyCA   TLSMode = "verifyCa"   // the server's certificate is of the CA
	TLSVerifyFull TLSMode = "verifyFull" // the certificate is of the CA and has the host name as a SAN
)

// Postgres is a PostgreSQL database, version 12 or later. Several replicas may use it at the same time. The user must
// be allowed to create tables.
type Postgres struct {
	Host     string // a host name, an address, or the directory of a Unix socket
	Port     uint16
	User     string
	Password string // never in an error
	Database string

	// ConnectTimeout bounds the time to connect; 0 means 5 seconds.
	ConnectTimeout time.Duration
	// MaxConnections bounds the connections of a replica; 0 means 50, and less than 3 means 3: one writes, one listens
	// and the rest read.
	MaxConnections int

	TLS TLSMode // empty means TLSDisable
	// CAFile has the CA certificates in PEM, one of which must have signed the server's certificate; empty means the
	// system's.
	CAFile string
	// CertFile and KeyFile are the client certificate and its key, in PEM; both may be empty.
	CertFile, KeyFile string
}

// String implements [Source].
func (p Postgres) String() string {
	return fmt.Sprintf("PostgreSQL database %s of %s at %s", p.Database, p.User,
		net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))))
}

const (
	// channel is the channel of the replicas' notifications of writes.
	channel = "weft_changed"
	// mostAnnounced bounds the bytes of announced kinds; PostgreSQL accepts 8,000.
	mostAnnounced = 4000
	// schemaLock locks a number that nothing else in the database is likely to lock.
	schemaLock = `SELECT pg_advisory_xact_lock(7307465)`
)

// postgresDialect returns the dialect of PostgreSQL. Listeners ignore notifications with their own instance name.
func postgresDialect(instance string) dialect {
	return dialect{
		schema:      strings.NewReplacer("{text}", `TEXT COLLATE "C"`, "{bytes}", "BYTEA"),
		lockSchema:  schemaLock,
		takeCounter: selectCounter + ` FOR UPDATE`,
		snapshot:    sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		reclaim:     []string{`VACUUM FULL resources`, `VACUUM FULL history`},
		announce: func(b *batch) {
			kinds := strings.Join(slices.Collect(maps.Keys(b.touched)), " ")
			if len(kinds) > mostAnnounced {
				kinds = ""
			}
			b.queue(`SELECT pg_notify($1, $2)`, channel, instance+" "+kinds)
		},
		run:       runTogether,
		readRows:  readRows,
		cause:     postgresCause,
		uncertain: uncertain,
	}
}

// runTogether sends all statements before it reads the first response.
func runTogether(ctx context.Context, tx *transaction, statements []statement) error {
	var together pgx.Batch
	for _, s := range statements {
		together.Queue(s.text, s.args...)
	}
	return tx.connection.Raw(func(driver any) error {
		return driver.(*stdlib.Conn).Conn().SendBatch(ctx, &together).Close()
	})
}

// readRows reads all keys with one statement.
func readRows(ctx context.Context, tx *transaction, keys []resource.Key) ([]store.Row, error) {
	var kinds, meshes, names []string
	for _, key := range keys {
		kinds, meshes, names = append(kinds, key.Kind), append(meshes, key.Mesh), append(names, key.Name)
	}
	found, err := tx.QueryContext(ctx,
		`SELECT `+columns+` FROM resources WHERE (kind, mesh, name) IN (SELECT * FROM unnest($1::text[], $2::text[], `+
			`$3::text[]))`, kinds, meshes, names)
	if err != nil {
		return nil, err
	}
	return scanAll(found)
}

func postgresCause(err error) error {
	response, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && response.Code == "53100": // disk_full
		return store.ErrFull
	case ok && response.Code == "25006": // read_only_sql_transaction
		return store.ErrReadOnly
	case !ok || shuttingDown(response):
		return store.ErrUnreachable
	}
	return store.ErrUnavailable
}

// shuttingDown reports whether the server stops, starts or closes the connection (SQLSTATE 57xxx).
func shuttingDown(response *pgconn.PgError) bool { return strings.HasPrefix(response.Code, "57") }

// uncertain reports whether a transaction may be committed after an error. A response of the server means a rollback,
// unless the server shuts down.
func uncertain(err error) bool {
	response, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || shuttingDown(response)
}

func (p Postgres) open(ctx context.Context) (database, error) {
	config, err := p.config()
	if err != nil {
		return database{}, fmt.Errorf("%s: %w", p, err)
	}
	db := database{write: p.pool(config, 1), read: p.pool(config, max(1, cmp.Or(p.MaxConnections, 50)-2))}
	db.close = func() error { return errors.Join(db.read.Close(), db.write.Close()) }
	if err := db.write.PingContext(ctx); err != nil {
		return database{}, errors.Join(fmt.Errorf("%s: connecting: %w", p, err), db.close())
	}
	instance := uuid.NewString()
	db.dialect = postgresDialect(instance)
	db.listen = func(ctx context.Context, hub *follow.Hub, log *slog.Logger) {
		log = log.With("database", p.String())
		(&listener{database: p, config: config, instance: instance, hub: hub, log: log}).run(ctx)
	}
	return db, nil
}

func (p Postgres) attach(context.Context) (*sql.DB, sql.TxOptions, error) {
	config, err := p.config()
	if err != nil {
		return nil, sql.TxOptions{}, fmt.Errorf("%s: %w", p, err)
	}
	return p.pool(config, 1), postgresDialect("").snapshot, nil
}

// idleConnection is the lifetime of an unused connection.
const idleConnection = 5 * time.Minute

func (p Postgres) pool(config *pgx.ConnConfig, connections int) *sql.DB {
	db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(p.readTLS))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleConnection)
	return db
}

func (p Postgres) config() (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig("host=localhost sslmode=disable")
	if err != nil {
		return nil, err
	}
	config.Host, config.Port, config.Database = p.Host, p.Port, p.Database
	config.User, config.Password = p.User, p.Password
	config.Fallbacks = nil
	config.ConnectTimeout = cmp.Or(p.ConnectTimeout, 5*time.Second)
	config.DialFunc = dialer(config.ConnectTimeout).DialContext
	config.RuntimeParams = map[string]string{
		"application_name": "weft",
		// A replica that stops in the middle of a write blocks the others no longer than this.
		"idle_in_transaction_session_timeout": "5000", // milliseconds
	}
	if config.TLSConfig, err = p.tls(); err != nil {
		return nil, err
	}
	return config, nil
}

// readTLS gives a new connection the CA and the client certificate that the files have now. Where they can't be read,
// as in the moment of their replacement, those of the start are used.
func (p Postgres) readTLS(_ context.Context, config *pgx.ConnConfig) error {
	if current, err := p.tls(); err == nil {
		config.TLSConfig = current
	}
	return nil
}

// dialer returns a dialer that detects a dead peer within half a minute.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         boundUnacknowledged,
	}
}

func (p Postgres) tls() (*tls.Config, error) {
	if p.TLS == "" || p.TLS == TLSDisable {
		return nil, nil
	}
	config := &tls.Config{ServerName: p.Host, MinVersion: tls.VersionTLS12}
	if p.CAFile != "" {
		pem, err := os.ReadFile(p.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", p.CAFile)
		}
	}
	if p.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	switch p.TLS {
	case TLSVerifyNone:
		config.InsecureSkipVerify = true // as the mode says
	case TLSVerifyCA:
		config.InsecureSkipVerify = true // replaces the library's verification, which includes the host name
		config.VerifyConnection = verifyChain(config.RootCAs)
	case TLSVerifyFull:
	default:
		return nil, fmt.Errorf("the TLS mode %q is not known; use disable, verifyNone, verifyCa or verifyFull", p.TLS)
	}
	return config, nil
}

// verifyChain verifies the server's certificate against the roots, without its host name.
func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		intermediates := x509.NewCertPool()
		for _, certificate := range state.PeerCertificates[1:] {
			intermediates.AddCert(certificate)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
		return err
	}
}
