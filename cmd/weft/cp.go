package main

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"weft/internal/adminsocket"
	"weft/internal/bundle"
	"weft/internal/server"
	"weft/internal/settings"
)

func newControlPlaneCommand(r *remote) *cobra.Command {
	cp := &cobra.Command{
		Use:   "cp",
		Short: "Run a control plane, and maintain its store",
	}
	cp.AddCommand(newControlPlaneRunCommand(), newControlPlaneConfigCommand(), newBackupCommand(), newRestoreCommand(),
		newBundleCommand(r))
	return cp
}

func newControlPlaneRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a control plane until SIGTERM or Ctrl-C",
		Long: `Run a control plane until SIGTERM or Ctrl-C: the control plane of one zone, which serves its proxies,
or, with --mode global, the global control plane. A zone joins global with --global-address and a zone token.

Settings come from the file, from KUMA_* variables, which override the file, and from flags, which override
both; docs/settings.md lists them. It is ready when GET /ready on port 5680 returns 200.`,
		Example: `  weft cp run --data-dir /var/lib/weft
  KUMA_STORE_TYPE=memory weft cp run --data-dir /tmp/weft     # keeps no resources
  KUMA_API_SERVER_HTTP_PORT=15681 weft cp run --config-file weft.yaml
  weft cp run --mode global --data-dir /var/lib/weft-global
  weft cp run --zone east --global-address grpcs://global.example:5685 --global-ca-file global.crt --zone-token-file east.token`,
		Args: cobra.NoArgs,
	}
	load := settingsFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := load()
		if err != nil {
			return err
		}
		tail := bundle.NewTail(keptLog)
		log := slog.New(slog.NewTextHandler(io.MultiWriter(cmd.ErrOrStderr(), tail),
			&slog.HandlerOptions{Level: s.LogLevel}))
		for _, warning := range warnings {
			log.Warn(warning)
		}
		return runControlPlane(cmd.Context(), s, log, tail)
	}
	return cmd
}

// keptLog is how many bytes of the log a support bundle has.
const keptLog = 1 << 20

// runControlPlane runs a control plane until ctx ends.
func runControlPlane(ctx context.Context, s *settings.Settings, log *slog.Logger, tail *bundle.Tail) error {
	links, err := socketLinks()
	if err != nil {
		log.Warn("weft on this machine does not find the administrator's socket by the address of the API; name it "+
			"with --api unix:"+
			filepath.Join(s.DataDir, adminsocket.Name), "reason", err)
	}
	running, err := server.Start(ctx, server.Config{Settings: s, Version: version, SocketLinks: links, Log: log,
		LogTail: tail})
	if err != nil {
		return err
	}
	return running.Wait()
}
