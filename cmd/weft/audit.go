package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"weft/internal/audit"
	"weft/internal/settings"
)

// openAudit answers the audit log, and what closes it.
func openAudit(s *settings.Settings, instance string, log *slog.Logger) (auditing *audit.Log, closing func(), err error) {
	switch s.Audit.Output {
	case settings.AuditOff:
		return audit.New(nil, instance, time.Now, log), func() {}, nil
	case settings.AuditStdout:
		return audit.New(os.Stdout, instance, time.Now, log), func() {}, nil
	}
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("general.dataDir: %w", err)
	}
	file, err := audit.OpenFile(filepath.Join(s.DataDir, "audit.log"), int64(s.Audit.MaxSize)<<20, s.Audit.Keep)
	if err != nil {
		return nil, nil, fmt.Errorf("the audit log: %w; choose another place with KUMA_AUDIT_OUTPUT", err)
	}
	return audit.New(file, instance, time.Now, log), func() { file.Close() }, nil
}
