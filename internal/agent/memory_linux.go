package agent

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// defaultMemory returns the bound of Envoy's heap in bytes where no flag sets one: three quarters of the limit of the
// agent's cgroup, which leaves room for the agent and for what is not heap, or half of the machine's memory. A bound
// below leastMemory is raised to that; 0 where neither is known.
func defaultMemory() uint64 { return memoryOf(os.DirFS("/")) }

func memoryOf(root fs.FS) uint64 {
	if limit := cgroupLimit(root); limit > 0 {
		return max(limit/4*3, leastMemory)
	}
	if total := machineMemory(root); total > 0 {
		return max(total/2, leastMemory)
	}
	return 0
}

// cgroupLimit returns the least memory limit of the process's cgroup and those above it, 0 for none. A limit that
// exceeds the machine's memory, as cgroup v1 writes for none, is none.
func cgroupLimit(root fs.FS) uint64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least, total := uint64(0), machineMemory(root)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[0] == "0":
		case parts[1] == "memory":
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if limit := number(root, path.Join(mount, dir, file)); limit > 0 && (total == 0 || limit < total) &&
				(least == 0 || limit < least) {
				least = limit
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// number reads a file with one number, 0 where there is none.
func number(root fs.FS, file string) uint64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64) // "max" is no limit
	return n
}

func machineMemory(root fs.FS) uint64 {
	file, err := root.Open("proc/meminfo")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "MemTotal:"); found {
			kib, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
