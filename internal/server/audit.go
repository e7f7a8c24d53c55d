package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"weft/internal/audit"
	"weft/internal/settings"
)

// openAudit opens the audit log.
func (s *Server) openAudit(context.Context) error {
	to, err := s.auditOutput()
	s.audit = audit.New(to, s.instance, time.Now, s.log)
	return err
}

// auditOutput returns where the audit log is written; nil where it is off.
func (s *Server) auditOutput() (io.Writer, error) {
	switch s.settings.Audit.Output {
	case settings.AuditOff:
		return nil, nil
	case settings.AuditStdout:
		return os.Stdout, nil
	}
	if err := os.MkdirAll(s.settings.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("general.dataDir: %w", err)
	}
	limits := s.settings.Audit
	file, err := audit.OpenFile(filepath.Join(s.settings.DataDir, "audit.log"), int64(limits.MaxSize)<<20, limits.Keep)
	if err != nil {
		return nil, fmt.Errorf("the audit log: %w; choose another place with KUMA_AUDIT_OUTPUT", err)
	}
	s.onClose(func() { file.Close() })
	return file, nil
}
