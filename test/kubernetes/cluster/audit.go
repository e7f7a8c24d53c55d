package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"os"
)

// auditPolicy records the requests of service accounts.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`

// auditFlags have the API server write the log of the audit, which never becomes too large for one file.
func (s *Server) auditFlags() []string {
	return []string{"--audit-policy-file", s.file("audit.yaml"), "--audit-log-path", s.file("audit.log"),
		"--audit-log-maxsize", "100000"}
}

// Request is a request that a service account has sent. A watch is one when it begins, and another one when it ends.
type Request struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	Response  struct{ Code int } `json:"responseStatus"`
}

// Requests returns the requests of a user after a position of the log, and the position after them. The log begins at
// 0. A request is in it before its client has the response.
func (s *Server) Requests(user string, after int64) (all []Request, next int64, err error) {
	file, err := os.Open(s.file("audit.log"))
	if err == nil {
		defer file.Close()
		_, err = file.Seek(after, io.SeekStart)
	}
	if err != nil {
		return nil, after, err
	}
	for decoder := json.NewDecoder(file); ; {
		var r Request
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line may be incomplete
			return all, after + decoder.InputOffset(), nil
		case err != nil:
			return nil, after, err
		case r.User.Username == user:
			all = append(all, r)
		}
	}
}
