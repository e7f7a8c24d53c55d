package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A buildCache is a copy of the go command's build cache, for builds with a mutation. What they add is of no use to
// another build: in the cache itself, which the go command trims after days, all mutations left 70 GB. The copy has
// hard links and therefore takes no space.
type buildCache struct{ base, copy string }

// newBuildCache returns an empty copy beside the cache, since hard links can't lead to another file system.
func newBuildCache() (buildCache, error) {
	printed, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return buildCache{}, err
	}
	base := strings.TrimSpace(string(printed))
	dir, err := os.MkdirTemp(filepath.Dir(base), "go-build-mutate-")
	return buildCache{base, dir}, err
}

// update makes the names in the copy those of the cache: new files are linked, and what builds added is removed. Of two
// builds of one name the result is the same, so that a name is enough to compare.
func (c buildCache) update() error {
	folders, err := os.ReadDir(c.base)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		if err := updateFolder(filepath.Join(c.base, folder.Name()), filepath.Join(c.copy, folder.Name())); err != nil {
			return err
		}
	}
	return nil
}

// updateFolder is update for a folder of files. A folder within it, which has a program that the go command built to
// run it once, is left out.
func updateFolder(base, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	surplus := map[string]bool{}
	present, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	for _, entry := range present {
		surplus[entry.Name()] = true
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || surplus[name] {
			delete(surplus, name)
			continue
		}
		// The go command may have trimmed the file since the folder was read.
		err := os.Link(filepath.Join(base, name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name := range surplus {
		if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}
