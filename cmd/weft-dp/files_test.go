package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestEveryFileSaysWhenItIsRead: the page of replaced files has a row for each flag with a file.
func TestEveryFileSaysWhenItIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/files.md")
	if err != nil {
		t.Fatal(err)
	}
	newRunCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Name, "-file") && !strings.Contains(string(page), "| `--"+f.Name+"` |") {
			t.Errorf("--%s has no row", f.Name)
		}
	})
}
