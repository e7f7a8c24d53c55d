package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const groups = "/sys/fs/cgroup"

// unified returns whether the control groups are of version 2.
func unified() bool {
	_, err := os.Stat(filepath.Join(groups, "cgroup.controllers"))
	return err == nil
}

// controllers returns the roots of the machine's control groups: one for each controller of version 1, or the one root
// of version 2.
func controllers() []string {
	if unified() {
		return []string{groups}
	}
	roots, _ := filepath.Glob(filepath.Join(groups, "*", "cgroup.procs"))
	for i, file := range roots {
		roots[i] = filepath.Dir(file)
	}
	return roots
}

// makeGroup makes a control group below one with the same controllers.
func makeGroup(path string) error {
	for _, root := range controllers() {
		group := filepath.Join(root, path)
		var err error
		if unified() {
			err = delegate(filepath.Dir(group))
		}
		if err == nil {
			err = os.MkdirAll(group, 0o755)
		}
		if err == nil && !unified() {
			err = inherit(group)
		}
		if err != nil {
			return fmt.Errorf("a node needs control groups of its own: %w", err)
		}
	}
	return nil
}

// inherit gives a group of version 1 the CPUs and the memory of its parent: without them a group of cpuset accepts no
// process.
func inherit(group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(group), file))
		if errors.Is(err, os.ErrNotExist) {
			continue // another controller
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, file), value, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kubeletControllers are those that a kubelet requires.
var kubeletControllers = []string{"cpu", "cpuset", "memory", "pids"}

// delegate gives the groups below a group of version 2 its controllers.
func delegate(group string) error {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return err
	}
	available := strings.Fields(string(text))
	for _, name := range kubeletControllers {
		if !slices.Contains(available, name) {
			return fmt.Errorf("%s has the controllers %q, without %s: delegate it to this machine's group", group,
				available, name)
		}
	}
	for _, name := range available {
		err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		if errors.Is(err, syscall.EBUSY) {
			err = fmt.Errorf("%w: a group with processes delegates no controllers (cgroups(7)). Move them: "+
				"mkdir %[2]s/init && for p in $(cat %[2]s/cgroup.procs); do echo $p >%[2]s/init/cgroup.procs; done",
				err, group)
		}
		if err != nil && slices.Contains(kubeletControllers, name) {
			return err
		}
	}
	return nil
}
