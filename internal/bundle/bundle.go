// Package bundle packs the diagnostics of a control plane into one archive (tar, gzip), for support.
//
// It does not remove secrets: callers must pass parts without them.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Section is one file of a bundle.
type Section struct {
	Name  string // "config.yaml", "resources/meshes.yaml"
	Write func(io.Writer) error
}

// Write packs parts into a folder. A part that fails is listed in errors.txt, and the others are packed.
func Write(to io.Writer, folder string, now time.Time, parts []Section) error {
	packed := gzip.NewWriter(to)
	archive := tar.NewWriter(packed)
	add := func(name string, content []byte) error {
		header := &tar.Header{Name: folder + "/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	var failures strings.Builder
	for _, part := range parts {
		var content bytes.Buffer
		if err := part.Write(&content); err != nil {
			fmt.Fprintf(&failures, "%s: %v\n", part.Name, err)
		}
		if err := add(part.Name, content.Bytes()); err != nil {
			return err
		}
	}
	if failures.Len() > 0 {
		if err := add("errors.txt", []byte(failures.String())); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

// Handler serves a new bundle named PREFIX-TIME.
func Handler(prefix string, parts []Section) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now().UTC()
		folder := prefix + "-" + now.Format("20060102-150405")
		var whole bytes.Buffer // so that a failure is still a 500
		if err := Write(&whole, folder, now, parts); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/gzip")
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", folder+".tar.gz"))
		_, _ = w.Write(whole.Bytes()) // the reader has disconnected
	})
}
