package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"weft/kind"
	"weft/resource"
)

// manifest is one document of a file.
type manifest struct {
	object resource.Any
	kind   resource.Descriptor
}

// readManifests reads every document that the paths hold: of a file, of the .yaml, .yml and .json files
// under a directory, or of in for "-". The error names every document that is wrong.
func readManifests(paths []string, in io.Reader, mesh string) ([]manifest, error) {
	var manifests []manifest
	var faults []error
	for _, path := range paths {
		files, err := expand(path)
		faults = append(faults, err)
		for _, file := range files {
			found, err := readManifest(file, in, mesh)
			manifests, faults = append(manifests, found...), append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(manifests) == 0 {
		return nil, fmt.Errorf("there is no resource in %v", paths)
	}
	return manifests, nil
}

// expand answers the files that a path means, by name.
func expand(path string) ([]string, error) {
	if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
		return []string{path}, nil // what is wrong with it shows when it is read
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

func readManifest(file string, in io.Reader, mesh string) ([]manifest, error) {
	var text []byte
	var err error
	if file == "-" {
		file = "standard input"
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	var manifests []manifest
	var faults []error
	for _, doc := range documents(text) {
		m, err := parseManifest(doc, mesh)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
			continue
		}
		manifests = append(manifests, m)
	}
	return manifests, errors.Join(faults...)
}

// parseManifest reads one document and checks its values, without changing what will be sent.
func parseManifest(doc []byte, mesh string) (manifest, error) {
	o, err := resource.Parse(doc, kind.ByName)
	if err != nil {
		return manifest{}, err
	}
	d := kind.ByName(o.Key().Kind)
	if d.Describe().Scope == resource.Mesh && o.Envelope().Mesh == "" {
		o.Envelope().Mesh = mesh
	}
	if o.Envelope().Name == "" {
		return manifest{}, resource.Errorf(resource.Invalid, "a %s has no name", o.Key().Kind)
	}
	checked, err := resource.Parse(doc, kind.ByName)
	if err != nil {
		return manifest{}, err
	}
	*checked.Envelope() = *o.Envelope()
	if problems := d.Prepare(checked); len(problems) > 0 {
		return manifest{}, &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
	}
	return manifest{o, d}, nil
}

// documents splits YAML at its document markers. Every document but the first begins with as many empty
// lines as stand before it, so that a parser's line numbers are those of the file.
func documents(text []byte) [][]byte {
	var docs [][]byte
	var current []byte
	line := 0
	flush := func() {
		if holdsAnything(current) {
			docs = append(docs, current)
		}
		current = bytes.Repeat([]byte("\n"), line)
	}
	for part := range bytes.Lines(text) {
		line++
		if marker := bytes.TrimRight(part, " \t\r\n"); bytes.Equal(marker, []byte("---")) {
			flush()
			continue
		}
		current = append(current, part...)
	}
	flush()
	return docs
}

// holdsAnything says whether there is more than empty lines and comments.
func holdsAnything(doc []byte) bool {
	for part := range bytes.Lines(doc) {
		if part = bytes.TrimSpace(part); len(part) > 0 && part[0] != '#' {
			return true
		}
	}
	return false
}

// writeOrder is the order in which kinds are written, so that each finds what it needs: a Dataplane that
// joins finds its service, its permissions and its identity there. Kinds that are not named come after.
var writeOrder = []resource.Descriptor{
	kind.Meshes, kind.Secrets, kind.MeshTrusts, kind.MeshIdentities,
	kind.MeshTrafficPermissions, kind.MeshServices, kind.Dataplanes,
}

// inWriteOrder sorts manifests for writing; those of one kind stay in the order of their files.
func inWriteOrder(manifests []manifest) {
	place := func(m manifest) int {
		if i := slices.Index(writeOrder, m.kind); i >= 0 {
			return i
		}
		return len(writeOrder)
	}
	slices.SortStableFunc(manifests, func(a, b manifest) int { return place(a) - place(b) })
}
