package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// OwnGroup returns attributes that put a program into its own process group, and by which the kernel kills it when the
// thread that started it ends, so also when this process is killed.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the process group of a process. A group that has ended is ignored.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// stopFamily stops a process, its group and all its descendants, and returns them; a negative ID is a group. It stops
// them until it finds no new one, since a stopped process starts no child.
func stopFamily(pid int) map[int]bool {
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
	return family
}

// signalAll sends a signal to the members of a family. Processes that have ended are ignored.
func signalAll(family map[int]bool, signal syscall.Signal) {
	for member := range family {
		_ = syscall.Kill(member, signal)
	}
}

// descendants returns the children of a process and, recursively, their children.
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

// parentage reads the PIDs of a process and of its parent from /proc/PID/stat (proc(5)): "PID (NAME) STATE PARENT ...".
// NAME may contain any character.
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
