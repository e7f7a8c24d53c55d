package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// A builtPackage is a package of the repository, or one that it imports. Its fields are those of `go list -json`.
type builtPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// compiler checks the types of mutated packages against the compiled packages that they import. It takes milliseconds
// for a mutation that takes the go command seconds, and does not see what a mutation breaks in other packages.
type compiler struct {
	root     string
	packages map[string]builtPackage // by their folders
	exports  map[string]string       // the files of compiled packages, by their import paths
	files    *token.FileSet
	parsed   map[string]*ast.File // by their paths
}

func newCompiler(root string) (*compiler, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	list.Dir, list.Stderr = root, os.Stderr
	listed, err := list.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := list.Start(); err != nil {
		return nil, err
	}
	c := &compiler{root: root, packages: map[string]builtPackage{}, exports: map[string]string{},
		files: token.NewFileSet(), parsed: map[string]*ast.File{}}
	for decoder := json.NewDecoder(listed); ; {
		var p builtPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return c, list.Wait()
		} else if err != nil {
			return nil, errors.Join(err, list.Wait())
		}
		c.packages[p.Dir] = p
		c.exports[p.ImportPath] = p.Export
	}
}

// checkAll returns the errors of the mutations that do not compile.
func (c *compiler) checkAll(mutations []mutation) error {
	for _, m := range mutations { // before the checks, which then only read
		for _, e := range m.edits {
			if err := c.parse(filepath.Dir(filepath.Join(c.root, e.file))); err != nil {
				return err
			}
		}
	}
	problems := make([]error, len(mutations))
	var workers sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		imports := importer.ForCompiler(c.files, "gc", c.open)
		workers.Go(func() {
			for i := range next {
				if err := c.check(mutations[i], imports); err != nil {
					problems[i] = fmt.Errorf("%s: %s: does not compile: %w", table, mutations[i], err)
				}
			}
		})
	}
	for i := range mutations {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(problems...)
}

// open opens the compiled form of an imported package.
func (c *compiler) open(path string) (io.ReadCloser, error) {
	if c.exports[path] == "" {
		return nil, fmt.Errorf("no package of the repository imports %s", path)
	}
	return os.Open(c.exports[path])
}

// parse parses the files of a package.
func (c *compiler) parse(dir string) error {
	for _, name := range c.packages[dir].GoFiles {
		path := filepath.Join(dir, name)
		if c.parsed[path] != nil {
			continue
		}
		file, err := parser.ParseFile(c.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.parsed[path] = file
	}
	return nil
}

// check returns the first error in each package that a mutation edits.
func (c *compiler) check(m mutation, imports types.Importer) error {
	edited, err := m.edited(c.root)
	if err != nil {
		return err
	}
	dirs := map[string]bool{}
	for path := range edited {
		dirs[filepath.Dir(path)] = true
	}
	for dir := range dirs {
		of := c.packages[dir]
		var files []*ast.File
		for _, name := range of.GoFiles {
			path := filepath.Join(dir, name)
			file := c.parsed[path]
			if text, is := edited[path]; is {
				if file, err = parser.ParseFile(c.files, path, text, parser.SkipObjectResolution); err != nil {
					return err
				}
			}
			files = append(files, file)
		}
		if _, err := (&types.Config{Importer: imports}).Check(of.ImportPath, c.files, files, nil); err != nil {
			return err
		}
	}
	return nil
}
