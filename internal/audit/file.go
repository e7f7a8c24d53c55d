package audit

import (
	"fmt"
	"os"
)

// File is a file of bounded size: when it is full it becomes PATH.1, that becomes PATH.2, and so on, and the
// last one goes. Only its owner may read it. It is no good for two processes.
type File struct {
	path string
	most int64 // bytes
	keep int

	open *os.File
	size int64
}

// OpenFile opens or creates a file with a maximum size, and keeps a number of older ones.
func OpenFile(path string, most int64, keep int) (*File, error) {
	f := &File{path: path, most: most, keep: keep}
	return f, f.reopen()
}

func (f *File) reopen() error {
	open, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := open.Stat()
	if err != nil {
		open.Close()
		return err
	}
	f.open, f.size = open, info.Size()
	return nil
}

// Write implements io.Writer. What was written in part is taken back, so that every line is whole.
func (f *File) Write(line []byte) (int, error) {
	if f.size > 0 && f.size+int64(len(line)) > f.most {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.open.Write(line)
	if err != nil {
		_ = f.open.Truncate(f.size) // else the line is written again behind its own half
		return 0, err
	}
	f.size += int64(n)
	return n, nil
}

// rotate may be repeated after it failed.
func (f *File) rotate() error {
	for i := f.keep; i >= 1; i-- {
		from := f.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", f.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", f.path, i)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if f.keep == 0 {
		if err := os.Remove(f.path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	full := f.open
	if err := f.reopen(); err != nil {
		return err
	}
	return full.Close()
}

// Close closes the file.
func (f *File) Close() error { return f.open.Close() }
