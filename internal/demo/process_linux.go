package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func supported() error { return nil }

// ownGroup puts a program into a process group of its own and ends it with the demo, even where the demo
// is itself killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killFamily kills a process, its group and all its descendants. Whoever is gone already is left out. They
// are stopped first, until there is nobody new: who is stopped starts no further child.
func killFamily(pid int) {
	family := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, member := range append(descendants(pid), pid, -pid) {
			if !family[member] {
				family[member], grown = true, true
				_ = syscall.Kill(member, syscall.SIGSTOP)
			}
		}
	}
	for member := range family {
		_ = syscall.Kill(member, syscall.SIGKILL)
	}
}

// descendants answers the children of a process, and theirs.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		child, parent, ok := parentage(stat)
		if ok {
			children[parent] = append(children[parent], child)
		}
	}
	var found []int
	for queue := children[pid]; len(queue) > 0; queue = queue[1:] {
		found = append(found, queue[0])
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// parentage reads /proc/PID/stat (proc(5)): "PID (NAME) STATE PARENT ...", where NAME may hold anything.
func parentage(stat string) (child, parent int, ok bool) {
	content, err := os.ReadFile(stat)
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	child, err = strconv.Atoi(filepath.Base(filepath.Dir(stat)))
	if err != nil || len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return child, parent, err == nil
}
