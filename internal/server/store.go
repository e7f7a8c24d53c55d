package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/sealed"
	"weft/internal/store/sql"
	"weft/kind"
)

// openStore opens the store of the settings.
func (s *Server) openStore(ctx context.Context) error {
	switch s.settings.Store {
	case settings.Memory:
		rows := memory.New(memory.Options{})
		s.onClose(func() { rows.Close() })
		s.store = rows
		return s.beginFirstStart(ctx, rows, true)
	case settings.KubernetesAPI:
		return s.openKubernetes(ctx)
	}
	below, err := sql.Open(ctx, database(s.settings), sql.Options{Log: s.log})
	if err != nil {
		return err
	}
	s.onClose(func() { below.Close() })
	if err := s.beginFirstStart(ctx, below, below.IsNew()); err != nil {
		return err
	}
	s.store, err = sealSecrets(ctx, s.settings, below, s.log)
	return err
}

// sharesStore returns whether other replicas may have the same store.
func sharesStore(s *settings.Settings) bool {
	return s.Store == settings.PostgreSQL || s.Store == settings.KubernetesAPI
}

// database returns the database of the resources, for settings whose store is one.
func database(s *settings.Settings) sql.Source {
	if s.Store == settings.SQLite {
		return sql.SQLite{Dir: s.DataDir}
	}
	p := s.Postgres
	return sql.Postgres{
		Host: p.Host, Port: p.Port, User: p.User, Password: p.Password, Database: p.Database,
		ConnectTimeout: p.ConnectTimeout, MaxConnections: p.MaxConnections,
		TLS: sql.TLSMode(p.TLSMode), CAFile: p.CAFile, CertFile: p.CertFile, KeyFile: p.KeyFile,
	}
}

// sealSecrets returns a store that encrypts the Encrypted kinds.
func sealSecrets(ctx context.Context, s *settings.Settings, below *sql.Store, log *slog.Logger) (store.Store, error) {
	keys, err := encryptionKeys(ctx, s, below)
	if err != nil {
		return nil, err
	}
	rows, err := sealed.Open(ctx, below, keys, encryptedKinds(), log)
	if err != nil {
		return nil, fmt.Errorf("%w; the key file is %s", err, EncryptionKeyFile(s))
	}
	return rows, nil
}

func encryptedKinds() []string {
	var kinds []string
	for _, d := range kind.All() {
		if info := d.Describe(); info.Encrypted {
			kinds = append(kinds, info.Name)
		}
	}
	return kinds
}

// EncryptionKeyFile returns the path of the key file of Secrets: as it is set, else in the data directory.
func EncryptionKeyFile(s *settings.Settings) string {
	if s.EncryptionKeyFile != "" {
		return s.EncryptionKeyFile
	}
	return filepath.Join(s.DataDir, "secrets.key")
}

// encryptionKeys reads the key file, and makes one in the data directory of a store that was never encrypted.
func encryptionKeys(ctx context.Context, s *settings.Settings, below store.Store) (*sealed.Keys, error) {
	return keysOr(s, func(path string) (*sealed.Keys, error) {
		encrypted, err := sealed.IsEncrypted(ctx, below)
		if err != nil {
			return nil, err
		}
		if encrypted {
			return nil, fmt.Errorf(
				"%s is missing, and the store is encrypted under it: put it back from where it was kept", path)
		}
		return sealed.MakeKeyFile(path)
	})
}

// keysOr reads the key file. It calls missing where the file of the data directory is missing.
func keysOr(s *settings.Settings, missing func(path string) (*sealed.Keys, error)) (*sealed.Keys, error) {
	path := EncryptionKeyFile(s)
	keys, err := sealed.ReadKeyFile(path)
	if s.EncryptionKeyFile != "" || !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	return missing(path)
}
