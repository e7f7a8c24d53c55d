package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/resource"
)

// audited says whether a request leaves an entry in the audit log: it changes something, makes a token, or
// shows what only few may see.
func (row route) audited(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || row.action.Viewed()
}

// serve answers a request where its caller may ask, and leaves its entry in the audit log. A caller that did
// not prove who it is leaves none: whoever likes could fill the log.
func (a *api) serve(w http.ResponseWriter, r *http.Request, row route) {
	if n := len(r.URL.RawQuery); n > maxQuery {
		a.fail(w, r, resource.Errorf(resource.Invalid, "the query has %d bytes, at most %d are read", n, maxQuery))
		return
	}
	var record *audit.Record
	if user := access.UserOf(r.Context()); user.Known() && row.audited(r) {
		var err error
		if record, err = a.Audit.Begin(user, r.RemoteAddr, r.Method+" "+r.URL.RequestURI(), row.action); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	seen := &statusSeen{ResponseWriter: w}
	err := a.Guard.permit(r, row.action)
	if err != nil {
		a.Guard.refuse(seen, r, err)
	} else if err = row.answer(seen, r.WithContext(audit.With(r.Context(), record))); err != nil {
		a.fail(seen, r, err)
	}
	record.End(seen.status, err)
}

// statusSeen remembers the status of an answer.
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
