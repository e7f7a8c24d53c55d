package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func unpack(t *testing.T, packed io.Reader) map[string]string {
	t.Helper()
	raw, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(raw); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

func TestAFailedSectionExcludesNoOther(t *testing.T) {
	w := httptest.NewRecorder()
	Handler("weft-bundle-east", []Section{
		{"a.txt", func(w io.Writer) error {
			io.WriteString(w, "half")
			return errors.New("the disk is gone")
		}},
		{"sub/b.txt", func(w io.Writer) error {
			_, err := io.WriteString(w, "whole")
			return err
		}},
	}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if named := w.Header().Get("Content-Disposition"); !strings.Contains(named, `"weft-bundle-east-2`) {
		t.Errorf("it is called %s", named)
	}
	files := unpack(t, w.Body)
	want := map[string]string{"a.txt": "half", "sub/b.txt": "whole", "errors.txt": "a.txt: the disk is gone\n"}
	if fmt.Sprint(files) != fmt.Sprint(want) {
		t.Errorf("the bundle has %q, want %q", files, want)
	}
}

func TestATailKeepsWholeLastLines(t *testing.T) {
	tail := NewTail(100)
	for i := range 1000 {
		fmt.Fprintf(tail, "line %d\n", i)
	}
	var kept bytes.Buffer
	tail.Copy(&kept)
	text := kept.String()
	if len(text) > 100 || len(text) < 30 || !strings.HasPrefix(text, "line ") ||
		!strings.HasSuffix(text, "line 999\n") {
		t.Errorf("of 1000 lines it keeps %q", text)
	}
}
