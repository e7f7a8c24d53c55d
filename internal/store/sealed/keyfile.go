package sealed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weft/internal/store/wholefile"
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
		return nil, err
	}
	return ReadKeyFile(path)
}

// AddToKeyFile appends the keys of another key file that this one lacks. It creates the file if it does not exist.
func AddToKeyFile(path string, text []byte) error {
	added, err := ParseKeys(text)
	if err != nil {
		return err
	}
	present, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeKeyFile(path, string(text))
	}
	if err != nil {
		return err
	}
	keys, err := ParseKeys(present)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for id := range added.all {
		if _, known := keys.all[id]; !known {
			return writeKeyFile(path, strings.TrimRight(string(present), "\n")+"\n"+string(text))
		}
	}
	return nil
}

// writeKeyFile makes the folder too: a machine that only makes backups of a cluster has no data directory. It does not
// return before the disk has the file: nothing that is encrypted later can be read without.
func writeKeyFile(path, text string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = wholefile.Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("writing the encryption keys: %w", err)
	}
	return nil
}
