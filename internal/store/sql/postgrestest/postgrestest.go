// Package postgrestest runs a PostgreSQL server for one test, in a temporary directory with a unix socket. It is
// stopped and removed at the end of the test.
//
// The programs of the server are those of the PATH or of Debian's package `postgresql`. Without them a test is skipped;
// if CI=true is set, it fails.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weft/internal/process"
	"weft/internal/store/sql"
	"weft/internal/testnet"
	"weft/internal/testwait"
)

// Server is a running PostgreSQL.
type Server struct {
	bin      string // directory of its programs
	dir      string // of its data and its socket
	as       *syscall.Credential
	port     int // of 127.0.0.1, with TLS alone; it also names the socket's file
	settings []string
	process  *process.Process

	mu        sync.Mutex
	databases int      // made
	empty     []string // of them
}

const administrator = "weft"

// Start answers a server that runs until the test ends. It does not wait for the disk, so that it survives
// [Server.Kill] and no loss of power; settings such as "fsync=on" go over that.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{bin: programs(t), port: testnet.Port(t), settings: append(small(), settings...)}
	var err error
	if s.dir, err = os.MkdirTemp("", "weft-postgres-"); err != nil { // t.TempDir is too long for a socket
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	if os.Getuid() == 0 { // as root PostgreSQL does not run
		s.as = unprivileged(t)
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	initdb := s.command("initdb", "--username="+administrator, "--auth=trust", "--encoding=UTF8", "--no-locale",
		"--no-sync", s.data())
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Run(t)
	t.Cleanup(s.Stop)
	return s
}

// small are the settings of a server that starts fast and lives for seconds.
func small() []string {
	return []string{
		"fsync=off", "listen_addresses=", "shared_buffers=16MB", "autovacuum=off",
		"wal_level=minimal", "max_wal_senders=0", "max_connections=100",
	}
}

// ServeTLS starts the server again, so that it also answers at 127.0.0.1, with a certificate in PEM, and there
// takes no connection without TLS.
func (s *Server) ServeTLS(t testing.TB, certificate, key []byte) {
	t.Helper()
	for name, content := range map[string][]byte{
		"server.crt": certificate, "server.key": key,
		"pg_hba.conf": []byte("local all all trust\nhostssl all all 127.0.0.1/32 trust\n"),
	} {
		path := filepath.Join(s.data(), name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s.as != nil {
			if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.settings = append(s.settings, "listen_addresses=127.0.0.1", "ssl=on")
	s.Stop()
	s.Run(t)
}

// programs answers where PostgreSQL is installed.
func programs(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		return filepath.Dir(slices.Max(found))
	}
	const missing = "PostgreSQL is not installed; on Debian: apt-get install postgresql"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	unprivileged, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(unprivileged.Uid, 10, 32)
	gid, _ := strconv.ParseUint(unprivileged.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command ends with the test's process, however that ends.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(s.bin, program), args...)
	command.Dir = s.dir
	command.SysProcAttr = s.attributes()
	return command
}

func (s *Server) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}

// Run starts the server again after [Server.Stop] or [Server.Kill], and returns once it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	args := []string{"-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port)}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	s.process = process.New(s.dir, "postgres", append([]string{filepath.Join(s.bin, "postgres")}, args...)...)
	s.process.Dir = s.dir
	s.process.Launch = func(command *exec.Cmd) error {
		command.SysProcAttr = s.attributes()
		return command.Start()
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Await(testwait.Timeout, "PostgreSQL responds", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, testwait.Attempt)
		defer cancel()
		connection, err := s.connect(ctx, "postgres")
		if err == nil {
			connection.Close(ctx)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Stop ends the server and every connection to it. Where it does not run it does nothing.
func (s *Server) Stop() { s.process.End(syscall.SIGINT) }

// Kill ends the server as a crash does: what it has not written to its log is lost.
func (s *Server) Kill() { s.process.End(syscall.SIGQUIT) }

// Freeze stops the server and the processes of its connections in the midst of what they do, as a machine that hangs
// would: connections stay, and nothing responds. The returned function lets them go on; it is called when the test
// ends, if not before.
func (s *Server) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	thaw = sync.OnceFunc(s.process.FreezeFamily())
	t.Cleanup(thaw)
	return thaw
}

func (s *Server) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", s.dir, s.port,
		administrator, database))
}

// Database answers an empty database. When the test ends it is emptied for the next one, which takes a tenth
// of the time that making one does.
func (s *Server) Database(t testing.TB) sql.Postgres {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.empty) == 0 {
		s.databases++
		name := fmt.Sprintf("weft_%d", s.databases)
		if err := s.exec(t.Context(), "postgres", `CREATE DATABASE `+name); err != nil {
			t.Fatal(err)
		}
		s.empty = append(s.empty, name)
	}
	name := s.empty[0]
	s.empty = s.empty[1:]
	t.Cleanup(func() { s.recycle(name) })
	return sql.Postgres{Host: s.dir, Port: uint16(s.port), User: administrator, Database: name, MaxConnections: 10,
		ConnectTimeout: testwait.Timeout}
}

// ReadOnly has every later transaction write, or not.
func (s *Server) ReadOnly(t testing.TB, is bool) {
	t.Helper()
	for _, statement := range []string{fmt.Sprintf(`ALTER SYSTEM SET default_transaction_read_only = %v`, is),
		`SELECT pg_reload_conf()`} {
		if err := s.exec(t.Context(), "postgres", statement); err != nil {
			t.Fatal(err)
		}
	}
	want := map[bool]string{true: "on", false: "off"}[is]
	testwait.Until(t, "the setting is read", func() error {
		connection, err := s.connect(t.Context(), "postgres")
		if err != nil {
			return err
		}
		defer connection.Close(t.Context())
		var now string
		err = connection.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&now)
		if err == nil && now != want {
			err = errors.New(now)
		}
		return err
	})
}

// recycle leaves a database alone that cannot be emptied, such as one of a server that was stopped.
func (s *Server) recycle(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Timeout)
	defer cancel()
	if s.exec(ctx, name, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`) == nil {
		s.mu.Lock()
		s.empty = append(s.empty, name)
		s.mu.Unlock()
	}
}

func (s *Server) exec(ctx context.Context, database, statement string) error {
	connection, err := s.connect(ctx, database)
	if err != nil {
		return err
	}
	defer connection.Close(context.WithoutCancel(ctx))
	_, err = connection.Exec(ctx, statement)
	return err
}
