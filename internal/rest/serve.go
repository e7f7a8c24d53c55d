package rest

import (
	"cmp"
	"net/http"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/resource"
)

// recordedAction returns the action of a request in the audit log, or false where the request is not recorded. The log
// has what a user sends to change a resource or to issue a token, and what reads restricted data. A preview of a user
// who may not write is none of these, but for a diff that has the configuration of proxies.
func (a *api) recordedAction(r *http.Request, row *route) (action access.Action, isRecorded bool) {
	isRead, isPreview := r.Method == http.MethodGet || r.Method == http.MethodHead, row.action == access.Preview
	switch {
	case isPreview && r.URL.Query().Has("fields"):
		return access.ViewConfigDump, true
	case isPreview, isDryRun(r):
		return row.action, row.action.IsView() || a.Guard.isWriter(access.UserOf(r.Context()))
	}
	return row.action, !isRead || row.action.IsView()
}

// permit returns an error where the caller may not send the request. It returns the action by which the caller may.
// Who may write something previews that, without the action preview.
func (a *api) permit(r *http.Request, row *route) (access.Action, error) {
	scope := row.scope(r)
	denied := a.Guard.permit(r, row.action, scope)
	switch {
	case denied == nil, row.action == access.Preview && a.Guard.isWriter(access.UserOf(r.Context())):
		return row.action, nil
	case isDryRun(r) && row.kindOfPath() != nil:
		if action := access.PreviewOf(row.kindOfPath().Describe()); a.Guard.permit(r, action, scope) == nil {
			return action, nil
		}
	}
	return row.action, denied
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
	user := access.UserOf(r.Context())
	if recorded, ok := a.recordedAction(r, &row); ok && user.Known() {
		var err error
		if record, err = a.Audit.Begin(user, r.RemoteAddr, r.Method+" "+r.URL.RequestURI(), recorded); err != nil {
			a.fail(w, r, err)
			return
		}
		record.SetNote(note)
	}
	seen := &statusSeen{ResponseWriter: w}
	action, err := a.permit(r, &row)
	if err != nil {
		a.Guard.deny(seen, r, err)
	} else if err = cmp.Or(faulty, row.checkParameters(r)); err != nil {
		a.fail(seen, r, err)
	} else {
		r = a.Guard.withMeshes(r.WithContext(audit.WithRecord(r.Context(), record)), action)
		if err = row.handle(seen, r); err != nil {
			a.fail(seen, r, err)
		}
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
