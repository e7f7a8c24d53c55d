// Package wholefile writes files atomically: after a crash of the process or the machine, a file has its old or its new
// content.
package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write lets a function write a file, and puts it in its place, over the one that was there, when the disk
// has all of it. The file is readable by its owner alone.
func Write(path string, content func(io.Writer) error) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename it does nothing
	err = content(file)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return sync(dir)
}

// sync makes a rename in a directory outlive a loss of power.
func sync(dir string) error {
	open, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(open.Sync(), open.Close())
}
