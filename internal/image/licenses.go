package image

import (
	"debug/buildinfo"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	licenseFolder = "/usr/share/licenses"
	ownModule     = "weft"
	envoyProgram  = "/usr/local/bin/envoy"
)

// envoyNotice is the NOTICE of Envoy's repository, whose license is that of this one.
//
//go:embed envoy.notice
var envoyNotice string

// licenseName matches the names of files with a license, or with what a license requires to be kept.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents|unlicense)([.-].*)?$`)

// AddLicenses adds the licenses of all that the image contains, below /usr/share: of Go and of each module of a Go
// program, of Envoy, and of the Debian package of each other file. It runs the go command in the working directory,
// whose modules the programs have. A file without a license is an error.
func (i *Image) AddLicenses() error {
	found := map[string]File{}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		file := i.Files[name]
		if file.Source == "" {
			continue
		}
		added, err := licensesOf(name, file.Source)
		if err != nil {
			return fmt.Errorf("the license of %s: %w", name, err)
		}
		maps.Copy(found, added)
	}
	i.Add(found)
	return nil
}

func licensesOf(name, source string) (map[string]File, error) {
	if info, err := buildinfo.ReadFile(source); err == nil {
		modules := []string{info.Main.Path}
		for _, m := range info.Deps {
			modules = append(modules, m.Path)
		}
		return moduleLicenses(modules)
	}
	if name == envoyProgram {
		root, err := goCommand("list", "-m", "-f", "{{.Dir}}", ownModule)
		return map[string]File{licenseFolder + "/envoy/NOTICE": {Content: envoyNotice},
			licenseFolder + "/envoy/LICENSE": {Source: filepath.Join(root, "LICENSE")}}, err
	}
	return packageLicense(source)
}

func goCommand(arguments ...string) (string, error) {
	out, err := exec.Command("go", arguments...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("go %s: %s", strings.Join(arguments, " "), failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// moduleLicenses returns the licenses of modules, and of Go itself.
func moduleLicenses(modules []string) (map[string]File, error) {
	root, err := goCommand("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	// Of Go, the rest of the tree are its tests and its tools.
	files := map[string]File{licenseFolder + "/go/LICENSE": {Source: filepath.Join(root, "LICENSE")}}
	listed, err := goCommand(append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(listed) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 || fields[2] == "" {
			return nil, fmt.Errorf("the module of %q is not on this machine", line)
		}
		of := path.Join(licenseFolder, fields[0])
		if fields[1] != "" {
			of += "@" + fields[1]
		}
		added, err := foundLicenses(of, fields[2], fields[0] == ownModule)
		if err != nil {
			return nil, fmt.Errorf("the module %s: %w", fields[0], err)
		}
		maps.Copy(files, added)
	}
	return files, nil
}

// foundLicenses returns the licenses in a folder, or in its root alone, as files below another one.
func foundLicenses(below, folder string, rootAlone bool) (map[string]File, error) {
	files, hasOwn := map[string]File{}, false
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != folder && (rootAlone || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || !licenseName.MatchString(entry.Name()) || strings.HasSuffix(name, ".go"):
			return nil
		}
		relative, err := filepath.Rel(folder, name)
		files[path.Join(below, filepath.ToSlash(relative))] = File{Source: name}
		hasOwn = hasOwn || filepath.Dir(name) == filepath.Clean(folder)
		return err
	})
	if err == nil && !hasOwn {
		err = errors.New("it has no license in " + folder)
	}
	return files, err
}

// packageLicense returns the license of the Debian package of a file.
func packageLicense(file string) (map[string]File, error) {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	// A library may be recorded by the path that it had before /lib became a link to /usr/lib.
	for _, name := range []string{file, target, "/usr" + file, strings.TrimPrefix(target, "/usr")} {
		out, err := exec.Command("dpkg-query", "--search", name).Output()
		if err != nil {
			continue
		}
		of, _, _ := strings.Cut(string(out), ":")
		license := "/usr/share/doc/" + of + "/copyright"
		if _, err := os.Stat(license); err != nil {
			return nil, err
		}
		return map[string]File{license: {Source: license}}, nil
	}
	return nil, fmt.Errorf("%s is of no Debian package; make the image on Debian or Ubuntu", file)
}
