package e2e

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// message is a request or a response as it is on the wire. It is read leniently: a server outside a mesh decides itself
// what it accepts.
type message struct {
	start    string   // the first line
	headers  []string // lines
	body     []byte
	broken   bool // the connection ends before the body does
	trailers []string
}

// readMessage reads the first line and the headers of a message.
func readMessage(r *bufio.Reader) (*message, error) {
	lines, err := readLines(r)
	if err == nil && len(lines) == 0 {
		lines, err = readLines(r) // RFC 9112, 2.2: an empty line before a request is skipped
	}
	if err == nil && len(lines) == 0 {
		err = errors.New("the first line is empty")
	}
	if err != nil {
		return nil, err
	}
	return &message{start: lines[0], headers: lines[1:]}, nil
}

// readLines reads lines until an empty one. A line that begins with a space continues the one before.
func readLines(r *bufio.Reader) (lines []string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return lines, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return lines, nil
		}
		if folded := strings.TrimLeft(line, " \t"); folded != line && len(lines) > 0 {
			lines[len(lines)-1] += " " + folded
			continue
		}
		lines = append(lines, line)
	}
}

// header returns the value of the first header with a name in lower case.
func (m *message) header(name string) string {
	for _, line := range m.headers {
		if of, value, _ := strings.Cut(line, ":"); strings.ToLower(of) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// status returns the status code of a response.
func (m *message) status() int {
	_, rest, _ := strings.Cut(m.start, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(code)
	return n
}

// readBody reads the body and the trailers. untilEnd states that a body without a length ends with the connection.
func (m *message) readBody(r *bufio.Reader, untilEnd bool) {
	var err error
	switch length := m.header("content-length"); {
	case strings.Contains(strings.ToLower(m.header("transfer-encoding")), "chunked"):
		if m.body, err = io.ReadAll(httputil.NewChunkedReader(r)); err == nil {
			m.trailers, err = readLines(r)
		}
	case length != "":
		n, _ := strconv.Atoi(length)
		m.body, err = io.ReadAll(io.LimitReader(r, int64(n)))
		if err == nil && len(m.body) < n {
			err = io.ErrUnexpectedEOF
		}
	case untilEnd:
		m.body, err = io.ReadAll(r)
	}
	m.broken = err != nil
}

// ofHops are the headers of each connection, and the length of a message, which its body shows.
var ofHops = []string{"connection", "keep-alive", "transfer-encoding"}

// added are the headers that proxies add where they are absent. docs/defaults.md has them.
var added = []string{"date", "x-request-id", "x-forwarded-proto", "x-forwarded-client-cert",
	"x-envoy-upstream-service-time"}

// said returns what a message says, without what differs by connection: the order of headers with different names, and
// the case of names.
func (m *message) said() []string {
	says := sortedLines("", m.headers)
	switch {
	case m.broken:
		says = append(says, "the body breaks off")
	case len(m.body) > 0:
		says = append(says, "body "+summary(m.body))
	}
	return append(says, sortedLines("trailer ", m.trailers)...)
}

func sortedLines(prefix string, headers []string) []string {
	var lines []string
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ":")
		name = strings.ToLower(name)
		if !slices.Contains(ofHops, name) && !slices.Contains(added, name) {
			lines = append(lines, fmt.Sprintf("%s%s: %s", prefix, name, summary([]byte(strings.TrimSpace(value)))))
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, ":")
		nameB, _, _ := strings.Cut(b, ":")
		return strings.Compare(nameA, nameB)
	})
	return collapsed(lines)
}

// collapsed replaces equal lines by one with their number.
func collapsed(lines []string) (short []string) {
	for i, n := 0, 0; i < len(lines); i += n {
		for n = 1; i+n < len(lines) && lines[i+n] == lines[i]; n++ {
		}
		if n == 1 {
			short = append(short, lines[i])
		} else {
			short = append(short, fmt.Sprintf("%s (%d times)", lines[i], n))
		}
	}
	return short
}

// summary returns text as it is, or the size and the hash of a long one.
func summary(text []byte) string {
	if len(text) <= 60 {
		quoted := strconv.Quote(string(text))
		return quoted[1 : len(quoted)-1]
	}
	return fmt.Sprintf("of %d bytes, %x", len(text), sha256.Sum256(text))[:24]
}

// headerLines returns the lines of parsed headers.
func headerLines(h http.Header) []string {
	var lines []string
	for name, values := range h {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	return lines
}

// ended returns how a connection has ended.
func ended(err error) string {
	switch {
	case err == nil:
		return "is open"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "is reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "ends"
	}
	return err.Error()
}
