package rest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

const (
	// maxCompressors is the number of bodies that are compressed concurrently. Others are sent as they are.
	maxCompressors = 4
	// minCompressed is the size of the smallest body that is compressed, in bytes.
	minCompressed = 1024
)

// compressors are the gzip writers that may be in use. An element may be nil: it is made when it is taken.
type compressors chan *gzip.Writer

func newCompressors() compressors {
	c := make(compressors, maxCompressors)
	for range maxCompressors {
		c <- nil
	}
	return c
}

// compress returns a body in the gzip format, or false where all writers are in use.
func (c compressors) compress(body []byte) ([]byte, bool) {
	var w *gzip.Writer
	select {
	case w = <-c:
	default:
		return nil, false
	}
	if w == nil {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	}
	defer func() { c <- w }()
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return out.Bytes(), true
}

// writeValidated writes a read model as JSON with a weak ETag, the hash of the body. A client that states the ETag gets
// 304 instead, and one that accepts gzip a compressed body.
func (a *api) writeValidated(w http.ResponseWriter, r *http.Request, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	a.writeRawValidated(w, r, raw)
	return nil
}

// writeRawValidated is [api.writeValidated] of an encoded body.
func (a *api) writeRawValidated(w http.ResponseWriter, r *http.Request, raw []byte) {
	hash := sha256.Sum256(raw)
	tag := strconv.Quote(base64.RawURLEncoding.EncodeToString(hash[:16]))
	header := w.Header()
	header.Set("ETag", "W/"+tag)
	header.Set("Cache-Control", "private, no-cache") // it is of this caller, and changes at any time
	header.Add("Vary", "Accept-Encoding")
	if hasTag(r.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json")
	if len(raw) >= minCompressed && mayCompress(r.Header) {
		if compressed, ok := a.compressors.compress(append(raw, '\n')); ok {
			header.Set("Content-Encoding", "gzip")
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(compressed) // the client may be gone
			return
		}
	}
	writeRaw(w, http.StatusOK, raw)
}

// hasTag reports whether a client states that it has the body with an entity tag, by a weak comparison. (RFC 9110,
// section 13.1.2.)
func hasTag(header http.Header, tag string) bool {
	for stated := range strings.SplitSeq(strings.Join(header.Values("If-None-Match"), ","), ",") {
		if stated = strings.TrimSpace(stated); stated == "*" || strings.TrimPrefix(stated, "W/") == tag {
			return true
		}
	}
	return false
}

// mayCompress reports whether a client accepts gzip. A response to a request that the page of another site caused is
// not compressed: the site chooses the query, and would learn from the size which parts of the body repeat it.
func mayCompress(header http.Header) bool {
	switch header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return accepts(header, "gzip")
	}
	return false
}

// accepts reports whether Accept-Encoding lists a coding with a weight other than 0. (RFC 9110, section 12.5.3.)
func accepts(header http.Header, coding string) bool {
	for entry := range strings.SplitSeq(strings.Join(header.Values("Accept-Encoding"), ","), ",") {
		name, parameter, weighted := strings.Cut(entry, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		_, weight, _ := strings.Cut(parameter, "=")
		return !weighted || strings.Trim(strings.TrimSpace(weight), "0.") != ""
	}
	return false
}
