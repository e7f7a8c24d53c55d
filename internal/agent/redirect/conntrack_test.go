package redirect

import (
	"os"
	"path/filepath"
	"testing"
)

func TestATimeoutIsRaised(t *testing.T) {
	file := filepath.Join(t.TempDir(), "timeout")
	if err := raise(file, 7200); err == nil {
		t.Error("a missing file is no error")
	}
	for is, want := range map[string]string{"60\n": "7200", "7200\n": "7200\n", "86400\n": "86400\n"} {
		if err := os.WriteFile(file, []byte(is), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := raise(file, 7200); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q becomes %q, %v; want %q", is, got, err, want)
		}
	}
}
