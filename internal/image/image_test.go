package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/image"
)

// program writes a file that images copy, with a time that no other call has.
func program(t *testing.T, modified time.Time) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, modified, modified); err != nil {
		t.Fatal(err)
	}
	return file
}

func archive(t *testing.T, i *image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := i.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchivesAreEqual: the bytes of an archive depend on the content of the files, and not on their times or folders.
func TestArchivesAreEqual(t *testing.T) {
	first := archive(t, image.ControlPlane("weft/weft:1", "amd64", program(t, time.Unix(1, 0))))
	second := archive(t, image.ControlPlane("weft/weft:1", "amd64", program(t, time.Now())))
	if !bytes.Equal(first, second) {
		t.Error("the archives of the same files differ")
	}
}

// TestArchive: the manifest names the configuration and the layer, and the layer has the digest that the configuration
// states, and each file after its folders.
func TestArchive(t *testing.T) {
	i := image.ControlPlane("weft/weft:1", "arm64", program(t, time.Now()))
	i.Add(map[string]image.File{"/usr/sbin/link": {Link: "../bin/x"}, "/etc/text": {Content: "text"}})
	files, _ := read(t, archive(t, i))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	decode(t, files["manifest.json"], &manifest)
	if len(manifest) != 1 || strings.Join(manifest[0].RepoTags, " ") != "weft/weft:1" {
		t.Fatalf("the manifest is %+v", manifest)
	}
	layer := files[manifest[0].Layers[0]]
	var config struct {
		Architecture string
		Config       struct {
			User       string
			Entrypoint []string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, files[manifest[0].Config], &config)
	digest := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(digest[:]); config.Rootfs.DiffIDs[0] != want {
		t.Errorf("the layer has the digest %s, the configuration states %s", want, config.Rootfs.DiffIDs[0])
	}
	if config.Architecture != "arm64" || config.Config.User != "5678:5678" ||
		config.Config.Entrypoint[0] != "/usr/local/bin/weft" {
		t.Errorf("the configuration is %+v", config)
	}
	inLayer, order := read(t, layer)
	if got := string(inLayer["usr/local/bin/weft"]); got != "content" {
		t.Errorf("weft is %q", got)
	}
	want := "etc/ etc/text tmp/ usr/ usr/local/ usr/local/bin/ usr/local/bin/weft usr/sbin/ usr/sbin/link"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("the layer has %s, want %s", got, want)
	}
}

// TestSidecarHasItsLibraries: Envoy, weft-dp and iptables run with the files of the image alone.
func TestSidecarHasItsLibraries(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	if _, err := exec.LookPath("xtables-nft-multi"); err != nil {
		t.Skip("no iptables on this machine: ", err)
	}
	shell, err := exec.LookPath("sh") // stands for Envoy: a program with shared libraries
	if err != nil {
		t.Fatal(err)
	}
	i, err := image.Sidecar("weft/weft-dp:1", "amd64", program(t, time.Now()), shell)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := read(t, archive(t, i))
	root := t.TempDir()
	for name, layer := range files {
		if strings.HasSuffix(name, "layer.tar") {
			unpack := exec.Command("tar", "-x", "-C", root)
			unpack.Stdin = bytes.NewReader(layer)
			if out, err := unpack.CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
		}
	}
	for _, command := range [][]string{{"/usr/local/bin/envoy", "-c", ":"}, {"iptables-restore", "--version"},
		{"ip6tables-save", "--version"}} {
		if out, err := exec.Command("chroot", append([]string{root}, command...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/xtables/libxt_owner.so")); len(found) == 0 {
		t.Error("the extensions of iptables are missing")
	}
}

// read returns the files of a tar archive, and all names in their order.
func read(t *testing.T, archive []byte) (files map[string][]byte, order []string) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], order = content, append(order, h.Name)
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
