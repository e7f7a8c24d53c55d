package subcommand_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"weft/cmd/internal/subcommand"
)

func TestAGroupHasTheCommandsThatItLists(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	for args, want := range map[string]string{
		"install crds":              "",
		"install":                   "",
		"install --help observed":   "", // help is what is wanted
		"crd":                       "",
		"install crd":               `unknown command "crd" for "weft install" (is it crds?)`,
		"install --mesh shop crd":   `unknown command "crd" for "weft install" (is it crds?)`,
		"install --unknown crd":     "", // the flag is reported
		"install observability -h=": "",
		"install observability":     `unknown command "observability" for "weft install"`,
		"get observability":         "",
	} {
		root := &cobra.Command{Use: "weft"}
		root.PersistentFlags().String("mesh", "", "")
		install := &cobra.Command{Use: "install"}
		install.AddCommand(&cobra.Command{Use: "crds", Run: run})
		root.AddCommand(install, &cobra.Command{Use: "get", Run: run})
		got := ""
		if err := subcommand.Check(root, strings.Fields(args)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("weft %s: %q, want %q", args, got, want)
		}
	}
}
