// Package backup writes all rows of a store to a file, and restores them into a store of the same type or another.
//
// The file is compressed (gzip). Inside, each line is a JSON object: the header, the rows, and the end, which has the
// number of rows and the SHA-256 of all lines before it. Bodies are copied unchanged, so encrypted ones stay encrypted.
package backup

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// format is the version of the file. A reader rejects unknown versions.
const format = 1

// Header describes the store of a backup.
type Header struct {
	Format  int       `json:"format"` // set by Write
	Created time.Time `json:"created"`
	Release string    `json:"release"` // of weft
	// Keys is the key file under which secrets are encrypted; empty where it is kept in another place.
	Keys string `json:"keys,omitempty"`
}

// line is one of its fields.
type line struct {
	Header *Header `json:"weftBackup,omitempty"`
	Row    *row    `json:"row,omitempty"`
	End    *end    `json:"end,omitempty"`
}

type row struct {
	Kind     string        `json:"kind"`
	Mesh     string        `json:"mesh,omitempty"`
	Name     string        `json:"name"`
	Owner    *resource.Key `json:"owner,omitempty"`
	Created  time.Time     `json:"created"`
	Modified time.Time     `json:"modified"`
	Body     []byte        `json:"body"`
}

type end struct {
	Rows   int    `json:"rows"`
	SHA256 string `json:"sha256"`
}

// Write writes the rows that a function hands over, until it returns.
func Write(to io.Writer, h Header, rows func(take func(store.Row) error) error) error {
	h.Format = format
	compressed := gzip.NewWriter(to)
	w := &writer{to: bufio.NewWriter(compressed), sum: sha256.New()}
	if err := w.line(line{Header: &h}); err != nil {
		return err
	}
	n := 0
	err := rows(func(r store.Row) error {
		n++
		return w.line(line{Row: &row{r.Key.Kind, r.Key.Mesh, r.Key.Name, r.Owner, r.Created, r.Modified, r.Body}})
	})
	if err != nil {
		return err
	}
	if err := w.line(line{End: &end{n, hex.EncodeToString(w.sum.Sum(nil))}}); err != nil {
		return err
	}
	return errors.Join(w.to.Flush(), compressed.Close())
}

type writer struct {
	to  *bufio.Writer
	sum hash.Hash
}

func (w *writer) line(l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = io.MultiWriter(w.to, w.sum).Write(append(text, '\n'))
	return err
}

// Read returns the header of a backup and its rows, without versions. The rows are complete and unchanged only if no
// error follows the last one.
func Read(from io.Reader) (Header, iter.Seq2[store.Row, error], error) {
	compressed, err := gzip.NewReader(from)
	if err != nil {
		return Header{}, nil, errors.New("this is no backup of weft")
	}
	r := &reader{from: bufio.NewReader(compressed), sum: sha256.New()}
	first, err := r.line()
	if err != nil || first.Header == nil {
		return Header{}, nil, errors.New("this is no backup of weft")
	}
	if first.Header.Format != format {
		return Header{}, nil,
			fmt.Errorf("the backup has the format %d, and this release reads %d: restore it with the release %s",
				first.Header.Format, format, first.Header.Release)
	}
	return *first.Header, r.rows, nil
}

type reader struct {
	from *bufio.Reader
	sum  hash.Hash // of the lines before the current one
}

func (r *reader) rows(yield func(store.Row, error) bool) {
	for n := 0; ; n++ {
		before := hex.EncodeToString(r.sum.Sum(nil))
		l, err := r.line()
		switch {
		case err != nil:
		case l.End != nil && (l.End.Rows != n || l.End.SHA256 != before):
			err = errors.New("the backup was changed: its checksum is wrong")
		case l.End != nil:
			return
		case l.Row == nil:
			err = errors.New("the backup has a line that is no row")
		}
		if err != nil {
			yield(store.Row{}, err)
			return
		}
		if !yield(l.Row.stored(), nil) {
			return
		}
	}
}

func (r *row) stored() store.Row {
	return store.Row{
		Key: resource.Key{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name}, Owner: r.Owner,
		Created: r.Created, Modified: r.Modified, Body: r.Body,
	}
}

func (r *reader) line() (l line, err error) {
	text, err := r.from.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return l, errors.New("the backup is cut off")
	}
	if err != nil {
		return l, fmt.Errorf("reading the backup: %w", err)
	}
	r.sum.Write(text)
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("the backup was changed: %w", err)
	}
	return l, nil
}
