package sealed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadKeyFile reads a key file; see [ParseKeys].
func ReadKeyFile(path string) (*Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the encryption keys: %w", err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("encryption keys, %s: %w", path, err)
	}
	return keys, nil
}

// MakeKeyFile makes a key file with a new key, readable by its owner alone. Where there is a file it fails
// with [fs.ErrExist].
func MakeKeyFile(path string) (*Keys, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, fs.ErrExist), err)
	}
	if err := writeKeyFile(path, NewKey()+"\n"); err != nil {
		return nil, fmt.Errorf("making the encryption key: %w", err)
	}
	return ReadKeyFile(path)
}

// writeKeyFile puts the whole file in its place, where it outlives a loss of power: nothing that is
// encrypted later can be read without it.
func writeKeyFile(path, text string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename it does nothing
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
