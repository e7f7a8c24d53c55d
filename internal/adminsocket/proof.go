package adminsocket

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// ProofName is the name of the file beside the socket with the header that a request needs, as one line, so that
// `curl -H @FILE` sends it.
const ProofName = "admin.header"

// proofHeader is the header of a request that proves that its sender has read the file.
const proofHeader = "Weft-Admin-Proof"

// newProof writes a new header into the file of a directory, which only its owner can read, and returns its value.
// Where it can't be written, as on a full disk, the former one is valid still.
func newProof(dir string) (string, error) {
	value := rand.Text() + rand.Text()           // of 128 bits each
	begun, err := os.CreateTemp(dir, ".header-") // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(begun, "%s: %s\n", proofHeader, value)
	if err = errors.Join(err, begun.Close()); err == nil {
		err = os.Rename(begun.Name(), filepath.Join(dir, ProofName))
	}
	if err != nil {
		_ = os.Remove(begun.Name()) // it has no more use
		if former := readProof(dir); former != "" {
			return former, nil
		}
	}
	return value, err
}

// readProof returns the value of the header in the file of a directory; empty if there is none.
func readProof(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, ProofName)) // without the file there is no value
	name, value, _ := strings.Cut(strings.TrimSpace(string(text)), ": ")
	if name != proofHeader {
		return ""
	}
	return value
}

// Proves reports whether a request has the header of this socket. Bytes that a proxy forwards to the socket have none:
// the proxy connects as the same user, and the client that sent them has not read the file.
func (s *Socket) Proves(r *http.Request) bool {
	values := r.Header.Values(proofHeader)
	return len(values) == 1 && subtle.ConstantTimeCompare([]byte(values[0]), []byte(s.proof)) == 1
}

// Prove adds the header in the file beside a socket to a request. The file is read for each request, since each start
// of the control plane writes a new one. Without the file the request is sent as it is, and its response has the
// reason.
func Prove(r *http.Request, socket string) {
	if value := readProof(filepath.Dir(socket)); value != "" {
		r.Header.Set(proofHeader, value)
	}
}
