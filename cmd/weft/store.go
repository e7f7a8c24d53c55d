package main

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

// openStore answers also whether the store is new.
func openStore(ctx context.Context, s *settings.Settings, log *slog.Logger) (rows store.Store, fresh bool, err error) {
	if s.Store == settings.Memory {
		return memory.New(memory.Options{}), true, nil
	}
	below, err := sql.Open(ctx, databaseOf(s), sql.Options{Log: log})
	if err != nil {
		return nil, false, err
	}
	rows, err = sealSecrets(ctx, s, below, log)
	if err != nil {
		return nil, false, errors.Join(err, below.Close())
	}
	return rows, below.Fresh(), nil
}

// databaseOf is where the settings keep resources, if not in memory.
func databaseOf(s *settings.Settings) sql.Source {
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

// sealSecrets answers the store that encrypts the kinds which say so.
func sealSecrets(ctx context.Context, s *settings.Settings, below *sql.Store, log *slog.Logger) (store.Store, error) {
	keys, err := encryptionKeys(ctx, s, below)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, d := range kind.All() {
		if info := d.Describe(); info.Encrypted {
			kinds = append(kinds, info.Name)
		}
	}
	rows, err := sealed.Open(ctx, below, keys, kinds, log)
	if err != nil {
		return nil, fmt.Errorf("%w\nThe key file is %s.", err, encryptionKeyFile(s))
	}
	return rows, nil
}

// encryptionKeyFile is the one that is set, or the one in the data directory.
func encryptionKeyFile(s *settings.Settings) string {
	if s.EncryptionKeyFile != "" {
		return s.EncryptionKeyFile
	}
	return filepath.Join(s.DataDir, "secrets.key")
}

// encryptionKeys reads the key file. In the data directory of a store that was never encrypted one is made.
func encryptionKeys(ctx context.Context, s *settings.Settings, below store.Store) (*sealed.Keys, error) {
	path := encryptionKeyFile(s)
	keys, err := sealed.ReadKeyFile(path)
	if s.EncryptionKeyFile != "" || !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	encrypted, err := sealed.Encrypted(ctx, below)
	if err != nil {
		return nil, err
	}
	if encrypted {
		return nil, fmt.Errorf("%s is missing, and the store is encrypted under it: put it back from where it was kept", path)
	}
	return sealed.MakeKeyFile(path)
}
