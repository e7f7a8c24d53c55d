package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/resource"
)

// sources are the places that documents are read from, and the values of their variables.
type sources struct {
	files     []string
	variables []string // KEY=VALUE
	// verbatim keeps {{ KEY }} unchanged.
	verbatim bool
}

func (s *sources) flags(command *cobra.Command) {
	command.Flags().StringArrayVarP(&s.files, "file", "f", nil,
		"file, directory, http(s) URL, or - for standard input; may be given several times")
	command.Flags().StringArrayVarP(&s.variables, "var", "v", nil,
		"KEY=VALUE, for {{ KEY }} in the documents; may be given several times")
}

// filesByFlag rejects arguments of a command that reads files by -f.
func filesByFlag(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; name a file with -f: %s -f %s", args[0], command.CommandPath(), args[0])
}

// document is one YAML or JSON document, or an item of a list in it.
type document struct {
	resource.YAMLDocument
	source string
	item   string // the item of a list, as " items[2]"; empty for a document of its own
	whole  bool   // the source is an export of kumactl, which has every resource of its control plane
}

// at returns the source and the line of a document.
func (d document) at() string { return fmt.Sprintf("%s:%d%s", d.source, d.Line, d.item) }

// read returns every document. The error lists every problem.
func (s *sources) read(ctx context.Context, in io.Reader) ([]document, error) {
	var values map[string]string
	if !s.verbatim {
		var err error
		if values, err = parseVariables(s.variables); err != nil {
			return nil, err
		}
	}
	var all []document
	var faults []error
	for _, path := range s.files {
		files, err := expand(path)
		faults = append(faults, err)
		for _, file := range files {
			found, err := readSource(ctx, file, in, values)
			all, faults = append(all, found...), append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, s.nothing()
	}
	return all, nil
}

// nothing returns the error of sources without a resource: an empty file, or an empty list.
func (s *sources) nothing() error { return fmt.Errorf("there is no resource in %v", s.files) }

// expand returns the files of a path, sorted by name: those of a directory end in .yaml, .yml or .json.
func expand(path string) ([]string, error) {
	if info, err := os.Stat(path); path == "-" || isURL(path) || err != nil || !info.IsDir() {
		return []string{path}, nil // its error is reported when it is read
	}
	var files []string
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			files = append(files, file)
		}
		return err
	})
	return files, err
}

// readSource reads the documents of a source, and replaces variables if values is not nil.
func readSource(ctx context.Context, source string, in io.Reader, values map[string]string) ([]document, error) {
	var text []byte
	var err error
	switch {
	case source == "-":
		source = "standard input"
		text, err = io.ReadAll(in)
	case isURL(source):
		text, err = download(ctx, source)
	default:
		text, err = os.ReadFile(source)
	}
	if err != nil {
		return nil, err
	}
	if values != nil {
		if text, err = fillIn(source, text, values); err != nil {
			return nil, err
		}
	}
	return documents(source, text), nil
}

func isURL(path string) bool { return strings.Contains(path, "://") }

const (
	largestDownload = 10 << 20
	downloadTime    = 30 * time.Second
)

// download reads an http(s) URL. A redirect leads to http(s) only, and not from https to http.
func download(ctx context.Context, address string) ([]byte, error) {
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("%s: only http:// and https:// are read", address)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{CheckRedirect: safely}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: answered %s", address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, largestDownload+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if len(text) > largestDownload {
		return nil, fmt.Errorf("%s: has more than %d MiB, which no file of resources has", address, largestDownload>>20)
	}
	return text, nil
}

func safely(next *http.Request, via []*http.Request) error {
	switch scheme := next.URL.Scheme; {
	case scheme != "http" && scheme != "https", scheme == "http" && via[0].URL.Scheme == "https":
		return fmt.Errorf("it redirects to %s, which is not followed", next.URL.Redacted())
	case len(via) > 5:
		return errors.New("it redirects more than five times")
	}
	return nil
}

func parseVariables(pairs []string) (map[string]string, error) {
	values := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !variableName.MatchString(key) {
			return nil, fmt.Errorf("--var %q is not KEY=VALUE with a KEY of letters, digits, - and _", pair)
		}
		values[key] = value
	}
	return values, nil
}

var (
	variableName = regexp.MustCompile(`^` + namePattern + `$`)
	// variable matches a name between braces. The templates of resources begin with a point or have two words, and are
	// kept.
	variable = regexp.MustCompile(`\{\{ *(` + namePattern + `) *\}\}`)
)

const namePattern = `[A-Za-z_][-A-Za-z0-9_]*`

// fillIn replaces variables with their values, except in comment lines. The error lists every variable without a value,
// with its position.
func fillIn(source string, text []byte, values map[string]string) ([]byte, error) {
	var filled bytes.Buffer
	var faults []error
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			line = variable.ReplaceAllFunc(line, func(found []byte) []byte {
				key := string(variable.FindSubmatch(found)[1])
				value, ok := values[key]
				if !ok {
					faults = append(faults, fmt.Errorf("%s:%d: %s has no value; give it one with --var %s=VALUE",
						source, number, found, key))
				}
				return []byte(value)
			})
		}
		filled.Write(line)
	}
	return filled.Bytes(), errors.Join(faults...)
}

// documents returns the documents of a YAML stream.
func documents(source string, text []byte) (all []document) {
	whole := bytes.HasPrefix(text, []byte("# Product: ")) // the first line of `kumactl export`
	for _, d := range resource.SplitYAML(text) {
		all = append(all, document{YAMLDocument: d, source: source, whole: whole})
	}
	return all
}
