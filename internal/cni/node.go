package cni

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Node is a node's configuration of networks.
type Node struct {
	// NetDir is the folder of the container runtime's network configurations, and BinDir that of its plugins.
	NetDir, BinDir string
	// ConfName is the file to which the plugin is chained. Empty: the first one by name that can be used, which is the
	// one that a container runtime uses.
	ConfName string
}

// extensions are those of the files that container runtimes read.
var extensions = []string{".conf", ".conflist", ".json"}

// file is a network configuration.
type file struct {
	name string
	*network
}

// files returns the configurations that a container runtime may use, in the order of their names. The error has the
// reason for each other one.
func (n *Node) files() (all []file, invalid error) {
	entries, err := os.ReadDir(n.NetDir) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !slices.Contains(extensions, filepath.Ext(e.Name())) || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(n.NetDir, e.Name()))
		if err == nil {
			var parsed *network
			if parsed, err = parse(text); err == nil {
				all = append(all, file{e.Name(), parsed})
				continue
			}
		}
		invalid = errors.Join(invalid, fmt.Errorf("%s: %w", e.Name(), err))
	}
	return all, invalid
}

// used returns the configuration to which the plugin is chained.
func (n *Node) used(all []file, invalid error) (*file, error) {
	for i, f := range all {
		if n.ConfName == "" || n.ConfName == f.name || n.ConfName == f.replaces() {
			return &all[i], nil
		}
	}
	if n.ConfName != "" {
		return nil, errors.Join(fmt.Errorf("there is no %s", n.ConfName), invalid)
	}
	return nil, cmp.Or(invalid, errors.New("there is no network configuration"))
}

// replaces returns the name of the file that this one replaces; empty: none.
func (f *file) replaces() string {
	name, _ := f.unconvert()
	return name
}

// CheckInstalled returns nil if the container runtime calls the plugin for new Pods, else the reason.
func (n *Node) CheckInstalled() error {
	if _, err := os.Stat(filepath.Join(n.BinDir, Type)); err != nil {
		return err
	}
	all, invalid := n.files()
	f, err := n.used(all, invalid)
	if err == nil && !f.chained() {
		err = fmt.Errorf("%s does not have the plugin %s as its last one", f.name, Type)
	}
	return err
}

// InstallProgram copies a program to the folder of plugins. The container runtime sees the old one or the new one.
func (n *Node) InstallProgram(program string) error {
	source, err := os.Open(program)
	if err != nil {
		return err
	}
	defer source.Close()
	return replace(filepath.Join(n.BinDir, Type), 0o755, source)
}

// Chain adds the plugin to the configuration that is used, and removes it from all others. It returns the name of the
// file that it has changed; empty: none.
func (n *Node) Chain() (changed string, err error) {
	all, invalid := n.files()
	f, err := n.used(all, invalid)
	if err != nil {
		return "", err
	}
	name := f.name
	if !f.chained() {
		if changed, err = n.chain(f); err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		name = changed
	}
	for _, other := range all {
		if other.name != f.name && other.name != name {
			err = errors.Join(err, n.unchain(&other))
		}
	}
	return changed, err
}

// chain adds the plugin to a configuration, and returns the name of its file, which is another one for a single plugin.
func (n *Node) chain(f *file) (string, error) {
	text, err := f.chain(f.name)
	if err != nil {
		return "", err
	}
	name := f.name
	if !f.list {
		name = f.name[:len(f.name)-len(filepath.Ext(f.name))] + ".conflist"
	}
	if err := n.write(name, f.name, text); err != nil {
		return "", err
	}
	if name != f.name { // until now the container runtime reads this file, whose name is first
		err = os.Remove(filepath.Join(n.NetDir, f.name))
	}
	return name, err
}

// Remove removes the plugin from all configurations, which are then as they were, and its program.
func (n *Node) Remove() error {
	all, _ := n.files()
	var failed error
	for _, f := range all {
		failed = errors.Join(failed, n.unchain(&f))
	}
	if failed != nil {
		return failed // a configuration whose plugin has no program starts no Pod
	}
	if err := os.Remove(filepath.Join(n.BinDir, Type)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (n *Node) unchain(f *file) error {
	if f.ours() < 0 {
		return nil
	}
	if name, text := f.unconvert(); name != "" {
		if filepath.Base(name) != name {
			return fmt.Errorf("%s: the file that it replaces is %q", f.name, name)
		}
		if err := n.write(name, f.name, text); err != nil {
			return err
		}
		return os.Remove(filepath.Join(n.NetDir, f.name))
	}
	text, err := f.unchain()
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return n.write(f.name, f.name, text)
}

// write writes a configuration with the mode of a file.
func (n *Node) write(name, like string, text []byte) error {
	info, err := os.Stat(filepath.Join(n.NetDir, like))
	if err != nil {
		return err
	}
	return replace(filepath.Join(n.NetDir, name), info.Mode().Perm(), bytes.NewReader(text))
}

// replace writes a file at once: a reader has the old content or the new one, also after a crash.
func replace(name string, mode os.FileMode, content io.Reader) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(name), "."+Type+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = io.Copy(temporary, content)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
