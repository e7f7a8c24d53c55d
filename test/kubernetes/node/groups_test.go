package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDelegate: groups of version 2 get the controllers of the group above, and an error names the missing ones.
func TestDelegate(t *testing.T) {
	for available, want := range map[string]string{
		"cpuset cpu io memory hugetlb pids rdma": "",
		"cpu memory pids":                        "without cpuset",
		"":                                       "without cpu:",
	} {
		group := t.TempDir()
		for name, content := range map[string]string{"cgroup.controllers": available, "cgroup.subtree_control": ""} {
			if err := os.WriteFile(filepath.Join(group, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := delegate(group)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with the controllers %q: %v, want %q", available, err, want)
		}
		last, err := os.ReadFile(filepath.Join(group, "cgroup.subtree_control"))
		if err != nil || want == "" && string(last) != "+rdma" || want != "" && len(last) > 0 {
			t.Errorf("with the controllers %q, the last enabled one is %q, %v", available, last, err)
		}
	}
}
