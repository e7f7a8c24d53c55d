package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/resource"
)

// audited reports whether a request is recorded in the audit log: it changes a resource, issues a token, or reads
// restricted data.
func (row route) audited(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || row.action.IsView()
}

// serve serves a request of an allowed caller, and records it in the audit log. A request of an unauthenticated caller
// is not recorded, since any client could fill the log.
func (a *api) serve(w http.ResponseWriter, r *http.Request, row route) {
	if n := len(r.URL.RawQuery); n > maxQuery {
		a.fail(w, r, resource.Errorf(resource.Invalid, "the query has %d bytes, at most %d are read", n, maxQuery))
		return
	}
	note, faulty := audit.NoteOf(r.Header)
	var record *audit.Record
	if user := access.UserOf(r.Context()); user.Known() && row.audited(r) {
		var err error
		if record, err = a.Audit.Begin(user, r.RemoteAddr, r.Method+" "+r.URL.RequestURI(), row.action); err != nil {
			a.fail(w, r, err)
			return
		}
		record.SetNote(note)
	}
	seen := &statusSeen{ResponseWriter: w}
	err := a.Guard.permit(r, row.action)
	if err != nil {
		a.Guard.deny(seen, r, err)
	} else if err = faulty; err != nil {
		a.fail(seen, r, err)
	} else if err = row.handle(seen, r.WithContext(audit.WithRecord(r.Context(), record))); err != nil {
		a.fail(seen, r, err)
	}
	record.End(seen.status, err)
}

// statusSeen records the status of a response.
type statusSeen struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusSeen) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap serves [http.ResponseController].
func (s *statusSeen) Unwrap() http.ResponseWriter { return s.ResponseWriter }
