package main

import (
	"os"

	"github.com/spf13/cobra"

	"weft/internal/settings"
)

// settingOf are the settings that have a flag, by the flag.
var settingOf = map[string]string{
	"data-dir":        "general.dataDir",
	"mode":            "mode",
	"zone":            "multizone.zone.name",
	"global-address":  "multizone.zone.globalAddress",
	"global-ca-file":  "multizone.zone.kds.rootCaFile",
	"zone-token-file": "multizone.zone.kds.auth.cpTokenPath",
}

// settingsFlags adds the flags of a control plane's settings to a command, and returns the function that loads the
// effective settings.
func settingsFlags(command *cobra.Command) (load func() (*settings.Settings, []string, error)) {
	file := command.Flags().String("config-file", "", "settings in YAML")
	command.Flags().String("data-dir", "weft-data", "directory of everything that must survive a restart")
	command.Flags().String("mode", "zone", "zone: serve the proxies of one zone; global: join zones into one mesh")
	command.Flags().String("zone", "default", "name of the zone")
	command.Flags().String("global-address", "", "join the zones of this global control plane, grpcs://HOST:PORT")
	command.Flags().String("global-ca-file", "",
		"CA certificates of the global control plane, in PEM (default those of the machine)")
	command.Flags().String("zone-token-file", "", "token that authenticates the zone to the global control plane")
	return func() (*settings.Settings, []string, error) {
		flags := map[string]string{}
		for flag, path := range settingOf {
			if f := command.Flags().Lookup(flag); f.Changed {
				flags[path] = f.Value.String()
			}
		}
		return settings.Load(*file, os.Environ(), flags)
	}
}

func newControlPlaneConfigCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Print the settings that a control plane started here would have, and where each comes from",
		Example: `  weft cp config -o yaml
  KUMA_STORE_TYPE=memory weft cp config --config-file weft.yaml`,
		Args: cobra.NoArgs,
	}
	load := settingsFlags(command)
	o := outputFlag(command, asTable, asJSON, asYAML)
	command.RunE = func(command *cobra.Command, _ []string) error {
		s, warnings, err := load()
		if err != nil {
			return err
		}
		for _, warning := range warnings {
			command.PrintErrln("Warning:", warning)
		}
		if o.form != asTable {
			return printValue(command.OutOrStdout(), s.Effective(), o.form)
		}
		var rows [][]string
		for _, v := range s.Effective() {
			rows = append(rows, []string{v.Path, v.Value, v.Source})
		}
		return printTable(command.OutOrStdout(), []string{"SETTING", "VALUE", "FROM"}, rows)
	}
	return command
}
