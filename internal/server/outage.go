package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weft/internal/admission"
	"weft/internal/outage"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// recordedFile is the file in the data directory whose absence is the mark of [outage.Config] for a store in the same
// directory: a file can be removed from a full disk, and not always be made.
const recordedFile = "certificates.recorded"

// newOutage returns what observes the writes of the store.
func (s *Server) newOutage() *outage.Outage {
	c := outage.Config{Record: s.recordUnrecorded, Life: s.state.Tables.LongestLife, Log: s.log,
		Timeout: outage.NoticeAfter, Shared: sharesStore(s.settings)}
	unmarked := func() error { return nil }
	c.Mark, c.Unmark = unmarked, unmarked
	switch file := filepath.Join(s.settings.DataDir, recordedFile); {
	case c.Shared:
		// A lease that is not given back is the mark: the other replicas find it.
		c.Mark = func() error { return s.replica.CheckStored() }
		c.Timeout = s.leaseTiming().Expiry()
	case s.settings.Store == settings.SQLite:
		_, err := os.Stat(file)
		c.Marked = errors.Is(err, fs.ErrNotExist) && !s.firstStart
		c.Mark = func() error { return os.Remove(file) }
		c.Unmark = func() error { return os.WriteFile(file, nil, 0o600) }
		if s.firstStart {
			_ = c.Unmark() // without it, the next start finds a mark
		}
	}
	return outage.New(c)
}

// recordUnrecorded stores until when certificates without a record may be valid, unless a later time is stored.
func (s *Server) recordUnrecorded(ctx context.Context, until time.Time) error {
	return admission.Modify(ctx, s.writer, kind.UnrecordedCertificatesList, "", kind.TheUnrecordedCertificates,
		func(o *resource.Object[kind.UnrecordedCertificates]) bool {
			later := until.After(o.Spec.Until.Time)
			if later {
				o.Spec.Until = kind.Time{Time: until}
			}
			return later
		})
}

// storeOutage returns for how many seconds the store has taken no writes; 0: it takes writes.
func (s *Server) storeOutage() int {
	since, _, ok := s.outage.Now()
	if !ok {
		return 0
	}
	return int(time.Since(since).Seconds())
}
