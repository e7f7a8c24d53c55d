// Package certfile keeps the certificates of files in memory, and reads a changed file again.
//
// It checks the files at the beginning of each connection, so a change applies to the next one. If a file can't be
// read, the former certificate stays in use, and the error is logged once.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Certificate is a certificate chain and its private key, in two files in PEM.
type Certificate struct{ watched[*tls.Certificate] }

// NewCertificate reads both files.
func NewCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{watched[*tls.Certificate]{
		log:   log,
		files: func() []string { return []string{certFile, keyFile} },
		read: func([]string) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		},
	}}
	return c, c.load()
}

// Now returns the certificate of the files.
func (c *Certificate) Now() *tls.Certificate { return c.current() }

// ForClient returns the certificate, for [tls.Config].
func (c *Certificate) ForClient(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Now(), nil }

// Roots is a set of CA certificates, of a file in PEM and of the files *.pem and *.crt of a folder.
type Roots struct{ watched[*x509.CertPool] }

// NewRoots reads a file and a folder. Either may be empty, which stands for none. A folder without files is a pool
// without certificates.
func NewRoots(file, dir string, log *slog.Logger) (*Roots, error) {
	p := &Roots{watched[*x509.CertPool]{log: log, files: func() []string { return poolFiles(file, dir) },
		read: readPool}}
	if dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
	}
	return p, p.load()
}

// Now returns the pool of the files.
func (p *Roots) Now() *x509.CertPool { return p.current() }

func poolFiles(file, dir string) []string {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		for _, pattern := range []string{"*.pem", "*.crt"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern)) // fails for bad patterns only
			files = append(files, found...)
		}
	}
	return files
}

func readPool(files []string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", file)
		}
	}
	return pool, nil
}

// watched is a value that is made of files.
type watched[T any] struct {
	files func() []string
	read  func(files []string) (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	value   T
	seen    string // the files of which value was made
	bad     string // the unreadable files that were logged
	problem error  // why these can't be read
}

// load reads the files for the first time.
func (w *watched[T]) load() error {
	files := w.files()
	seen := stamp(files)
	value, err := w.read(files)
	w.value, w.seen = value, seen
	return err
}

func (w *watched[T]) current() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	files := w.files()
	now := stamp(files) // before reading: a change meanwhile is seen the next time
	if now == w.seen {
		w.bad, w.problem = "", nil
		return w.value
	}
	switch value, err := w.read(files); {
	case err == nil:
		w.value, w.seen, w.bad, w.problem = value, now, "", nil
		w.log.Info("certificates have changed, and are read anew", "files", files)
	case w.bad != now:
		w.bad, w.problem = now, err
		w.log.Error("certificates have changed and can't be read; the former ones stay in use", "files", files, "error",
			err)
	}
	return w.value
}

// Problem returns why the files that have changed can't be read, without their paths, or "".
func (w *watched[T]) Problem() string {
	w.current()
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := errors.AsType[*fs.PathError](w.problem); ok {
		return at.Err.Error()
	}
	if w.problem != nil {
		return w.problem.Error()
	}
	return ""
}

// stamp differs wherever a file was replaced or written.
func stamp(files []string) string {
	var b strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		switch {
		case err == nil:
			fmt.Fprintf(&b, "%s %d %d\n", file, info.Size(), info.ModTime().UnixNano())
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(&b, "%s is gone\n", file)
		default:
			fmt.Fprintf(&b, "%s: %v\n", file, err)
		}
	}
	return b.String()
}
