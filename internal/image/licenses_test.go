package image_test

import (
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/image"
)

// build builds a program of this module.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	command := exec.Command("go", "build", "-o", file, "weft/cmd/"+name)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// TestLicensesOfModules: the image of a program has the license of each module that is linked into it, of Go and of
// weft.
func TestLicensesOfModules(t *testing.T) {
	for name, i := range map[string]*image.Image{
		"weft":     image.ControlPlane("weft/weft:1", "amd64", build(t, "weft")),
		"weft-cni": image.CNI("weft/weft-cni:1", "amd64", build(t, "weft-cni")),
	} {
		if err := i.AddLicenses(); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}",
			"weft/cmd/"+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		linked := map[string]bool{"go": true}
		for module := range strings.FieldsSeq(string(out)) {
			linked[strings.TrimSuffix(module, "@")] = true
		}
		for file := range i.Files {
			for module := range linked {
				if path.Dir(file) == "/usr/share/licenses/"+module {
					delete(linked, module)
				}
			}
		}
		if len(linked) > 0 {
			t.Errorf("the image of %s has no license of %v", name, linked)
		}
	}
}

// TestLicensesOfTheSidecar: the image of the sidecar has the licenses of Envoy, and of the Debian packages whose files
// it has.
func TestLicensesOfTheSidecar(t *testing.T) {
	for _, name := range []string{"xtables-nft-multi", "dpkg-query"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("the image is made with the iptables of Debian: ", err)
		}
	}
	shell, err := exec.LookPath("sh") // stands for Envoy: a program with shared libraries
	if err != nil {
		t.Fatal(err)
	}
	i, err := image.Sidecar("weft/weft-dp:1", "amd64", build(t, "weft-dp"), shell)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.AddLicenses(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/usr/share/licenses/envoy/LICENSE", "/usr/share/licenses/envoy/NOTICE",
		"/usr/share/licenses/weft/LICENSE", "/usr/share/doc/iptables/copyright", "/usr/share/doc/libc6/copyright"} {
		if _, found := i.Files[want]; !found {
			t.Errorf("the image has no %s", want)
		}
	}
}

// TestAFileWithoutALicense: no image is made with a file whose license is unknown.
func TestAFileWithoutALicense(t *testing.T) {
	i := image.ControlPlane("weft/weft:1", "amd64", program(t, time.Now()))
	if err := i.AddLicenses(); err == nil || !strings.Contains(err.Error(), "/usr/local/bin/weft") {
		t.Errorf("the error is %v, want one about /usr/local/bin/weft", err)
	}
}
