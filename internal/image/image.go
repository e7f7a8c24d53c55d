// Package image writes container images as archives that `docker load`, `podman load` and `ctr images import` read. It
// needs no container runtime and no registry. The same files give the same bytes.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Image is an image with one layer.
type Image struct {
	// Name is the repository and the tag, such as weft/weft-dp:1.0.
	Name string
	// Architecture is that of Go: amd64, arm64.
	Architecture string
	// User is UID:GID; empty for root.
	User       string
	Entrypoint []string
	Env        []string // NAME=VALUE
	// Files are the files by their path in the image. Their folders are made.
	Files map[string]File
}

// File is a file, a symbolic link, or a folder of an image. It belongs to root.
type File struct {
	Source  string // the file that is copied, with what its symbolic link leads to
	Link    string // the target of a symbolic link
	Content string // of a file without Source and Link
	Mode    int64  // of a folder; a file has 0755
}

// Add adds files to the image.
func (i *Image) Add(files map[string]File) {
	if i.Files == nil {
		i.Files = map[string]File{}
	}
	maps.Copy(i.Files, files)
}

// Write writes the archive (Docker Image Specification v1.2, "Combined Image JSON + Filesystem Changeset Format").
func (i *Image) Write(to io.Writer) error {
	digest, size := sha256.New(), counter(0)
	if err := i.writeLayer(io.MultiWriter(digest, &size)); err != nil {
		return err
	}
	layer := hex.EncodeToString(digest.Sum(nil))
	config, err := i.config(layer)
	if err != nil {
		return err
	}
	configDigest := sha256.Sum256(config)
	configName := hex.EncodeToString(configDigest[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{i.Name}, "Layers": []string{layer + "/layer.tar"}}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(to)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {configName, config}} {
		if err := archive.WriteHeader(header(f.name, 0o644, int64(len(f.content)))); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := archive.WriteHeader(header(layer+"/layer.tar", 0o644, int64(size))); err != nil {
		return err
	}
	if err := i.writeLayer(archive); err != nil {
		return err
	}
	return archive.Close()
}

// WriteFile writes the archive to a file.
func (i *Image) WriteFile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := i.Write(file); err != nil {
		file.Close()
		return fmt.Errorf("the image %s: %w", i.Name, err)
	}
	return file.Close()
}

// counter counts bytes.
type counter int64

// Write implements [io.Writer].
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// config returns the configuration of the image. Its times are zero, so that it depends on the content alone.
func (i *Image) config(layer string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": i.Architecture, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{"User": i.User, "Entrypoint": i.Entrypoint, "WorkingDir": "/",
			"Env": append([]string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, i.Env...)},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
	})
}

func header(name string, mode, size int64) *tar.Header {
	return &tar.Header{Name: name, Mode: mode, Size: size, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg,
		Format: tar.FormatUSTAR}
}

// writeLayer writes the files in the order of their paths, each after its folders.
func (i *Image) writeLayer(to io.Writer) error {
	files := maps.Clone(i.Files)
	for name := range i.Files {
		for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
			if _, ok := files[dir]; !ok {
				files[dir] = File{Mode: 0o755}
			}
		}
	}
	layer := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := files[name].write(layer, name[1:]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return layer.Close()
}

func (f File) write(layer *tar.Writer, name string) error {
	switch {
	case f.Link != "":
		h := header(name, 0o777, 0)
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		return layer.WriteHeader(h)
	case f.Mode != 0:
		h := header(name+"/", f.Mode, 0)
		h.Typeflag = tar.TypeDir
		return layer.WriteHeader(h)
	case f.Source == "":
		if err := layer.WriteHeader(header(name, 0o755, int64(len(f.Content)))); err != nil {
			return err
		}
		_, err := io.WriteString(layer, f.Content)
		return err
	}
	file, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := layer.WriteHeader(header(name, 0o755, info.Size())); err != nil {
		return err
	}
	_, err = io.Copy(layer, file)
	return err
}

// libraryPath matches the paths in the output of ldd.
var libraryPath = regexp.MustCompile(`(?m)(?:=>|^)\s*(/\S+) \(0x`)

// Libraries returns the shared libraries of a program of this machine, with the loader, at their own paths.
func Libraries(program string) (map[string]File, error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	files := map[string]File{}
	for _, found := range libraryPath.FindAllSubmatch(out, -1) {
		files[string(found[1])] = File{Source: string(found[1])}
	}
	return files, nil
}

// iptablesLinks are the names by which weft-dp calls iptables.
var iptablesLinks = []string{"iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save"}

// iptables returns the iptables of this machine that speaks nf_tables, with its libraries and extensions.
func iptables() (map[string]File, error) {
	program, err := exec.LookPath("xtables-nft-multi")
	if err != nil {
		return nil, fmt.Errorf("the sidecar's image has the iptables of this machine: %w; install iptables", err)
	}
	files, err := Libraries(program)
	if err != nil {
		return nil, err
	}
	files["/usr/sbin/xtables-nft-multi"] = File{Source: program}
	for _, name := range iptablesLinks {
		files["/usr/sbin/"+name] = File{Link: "xtables-nft-multi"}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/lib*.so")
	if err != nil || len(extensions) == 0 {
		return nil, fmt.Errorf("iptables has no extensions in /usr/lib/*/xtables (%v)", err)
	}
	for _, extension := range extensions {
		files[extension] = File{Source: extension}
		libraries, err := Libraries(extension)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, libraries)
	}
	return files, nil
}

// controlPlaneUser is the user and the group of the control plane.
const controlPlaneUser = "5678:5678"

// ControlPlane is the image of the control plane. The program is linked statically.
func ControlPlane(name, architecture, program string) *Image {
	return &Image{Name: name, Architecture: architecture, User: controlPlaneUser,
		Entrypoint: []string{"/usr/local/bin/weft"},
		Files:      map[string]File{"/usr/local/bin/weft": {Source: program}, "/tmp": {Mode: 0o1777}},
	}
}

// CNI is the image of the DaemonSet that installs the CNI plugin on nodes, whose files belong to root. The program is
// linked statically.
func CNI(name, architecture, program string) *Image {
	return &Image{Name: name, Architecture: architecture, Entrypoint: []string{"/usr/local/bin/weft-cni"},
		Files: map[string]File{"/usr/local/bin/weft-cni": {Source: program}},
	}
}

// Sidecar is the image of sidecars, of init containers and of zone proxies: weft-dp, Envoy and iptables. Envoy and
// iptables are those of this machine, so the image is of its architecture.
func Sidecar(name, architecture, agent, envoy string) (*Image, error) {
	i := &Image{Name: name, Architecture: architecture, Entrypoint: []string{"/usr/local/bin/weft-dp"},
		User: "5678:5678"}
	tables, err := iptables()
	if err != nil {
		return nil, err
	}
	libraries, err := Libraries(envoy)
	if err != nil {
		return nil, err
	}
	i.Add(tables)
	i.Add(libraries)
	i.Add(map[string]File{"/usr/local/bin/weft-dp": {Source: agent}, "/usr/local/bin/envoy": {Source: envoy},
		"/tmp": {Mode: 0o1777}})
	return i, nil
}
