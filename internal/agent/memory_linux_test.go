package agent

import (
	"testing"
	"testing/fstest"
)

func TestEnvoysMemoryFollowsTheCgroup(t *testing.T) {
	const meminfo = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"a limit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/weft-dp.service\n", "proc/meminfo": meminfo,
			"sys/fs/cgroup/system.slice/weft-dp.service/memory.max": "1073741824\n",
		}, 768 << 20},
		"a limit of a cgroup above": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/meminfo": meminfo,
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "536870912\n",
		}, 384 << 20},
		"a container, which sees its own cgroup as the root": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 768 << 20},
		"cgroup v1": {map[string]string{
			"proc/self/cgroup": "3:cpu:/x\n4:memory:/docker/1\n", "proc/meminfo": meminfo,
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "1073741824\n",
		}, 768 << 20},
		"cgroup v1 without a limit": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "proc/meminfo": meminfo,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 4 << 30},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", "proc/meminfo": meminfo}, 4 << 30},
		"too small": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "67108864\n"},
			leastMemory},
		"nothing is known": {nil, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryOf(root); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

func TestMemoryIsReadWithItsUnit(t *testing.T) {
	for text, want := range map[string]uint64{"512Mi": 512 << 20, "2Gi": 2 << 30, "1073741824": 1 << 30,
		"262144Ki": 256 << 20} {
		if got, err := ParseMemory(text); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2G", "1.5Gi", "-1Gi", "64Mi", "Mi", "99999999999Gi", "1GiB"} {
		if got, err := ParseMemory(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}
