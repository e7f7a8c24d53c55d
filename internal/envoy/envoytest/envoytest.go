// Package envoytest checks resources with a real Envoy, for tests.
package envoytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"weft/internal/xds"
)

// Binary returns WEFT_ENVOY, else the envoy on the PATH, else the one that `make tools` installs.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("WEFT_ENVOY"); path != "" {
		return path
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	path, err := installed()
	if err != nil {
		t.Fatal("no Envoy to test with: run `make tools`, or set WEFT_ENVOY")
	}
	return path
}

// Copy makes an Envoy with a path of its own, by which SPIRE distinguishes its processes from those of other Envoys of
// this machine: a link, or a copy on another file system.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	original, err := filepath.EvalSymlinks(from)
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(original, to) == nil {
		return
	}
	in, err := os.Open(original)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// installed returns the Envoy of .tools/ at the root of the module.
func installed() (string, error) {
	directory, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return "", errors.New("outside a module")
		}
		directory = parent
	}
	path := filepath.Join(directory, ".tools/envoy/envoy")
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
}

// Envoy validates resources in batches.
type Envoy struct {
	binary, directory string
	runtime           *bootstrapv3.LayeredRuntime
}

// New returns an Envoy with runtime flags; nil: those of Envoy. It reads its bootstraps from a directory of the test.
func New(t testing.TB, runtime *bootstrapv3.LayeredRuntime) *Envoy {
	t.Helper()
	return &Envoy{Binary(t), t.TempDir(), runtime}
}

// Rejection is a resource that Envoy rejects, with Envoy's reason.
type Rejection struct {
	Resource *xds.Resource
	Reason   string
}

// Rejections returns the resources that Envoy rejects. Each is validated apart from the others, so that one may refer
// to resources that are not there. It starts one Envoy where all are accepted, and a few for each rejection.
func (e *Envoy) Rejections(resources []*xds.Resource) ([]Rejection, error) {
	return halves(resources, e.validate, func(reason string) error {
		return fmt.Errorf("Envoy rejects resources together and accepts each half: %s", reason)
	})
}

// halves returns the resources for which check returns a reason. It checks all of them together, and each half of those
// that have one. together is called with the reason of some of which each half has none.
func halves(resources []*xds.Resource, check func([]*xds.Resource) (reason string, err error),
	together func(reason string) error) ([]Rejection, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	reason, err := check(resources)
	switch {
	case err != nil:
		return nil, err
	case reason == "":
		return nil, nil
	case len(resources) == 1:
		return []Rejection{{resources[0], reason}}, nil
	}
	half := len(resources) / 2
	first, err := halves(resources[:half], check, together)
	if err != nil {
		return nil, err
	}
	rest, err := halves(resources[half:], check, together)
	if err == nil && len(first)+len(rest) == 0 {
		err = together(reason)
	}
	return append(first, rest...), err
}

// validate returns why Envoy rejects resources; empty: it accepts them.
func (e *Envoy) validate(resources []*xds.Resource) (string, error) {
	bootstrap, err := bootstrapOf(resources)
	if err != nil {
		return "", err
	}
	path, err := e.write(bootstrap)
	if err != nil {
		return "", err
	}
	out, err := exec.Command(e.binary, "--mode", "validate", "-l", "error", "-c", path).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit):
		return "", err
	}
	return cutReason(out), nil
}

// write writes a bootstrap, with the runtime flags, and returns the path of its file.
func (e *Envoy) write(bootstrap *bootstrapv3.Bootstrap) (string, error) {
	bootstrap.LayeredRuntime = e.runtime
	text, err := protojson.Marshal(bootstrap)
	if err != nil {
		return "", err
	}
	path := filepath.Join(e.directory, "bootstrap.json")
	return path, os.WriteFile(path, text, 0o600)
}

// maxReason bounds the reported output of Envoy, which may have the whole resource.
const maxReason = 2000

func cutReason(out []byte) string {
	text := strings.TrimSpace(string(bytes.ToValidUTF8(out, []byte("?"))))
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return text
}

func bootstrapOf(resources []*xds.Resource) (*bootstrapv3.Bootstrap, error) {
	b := newBuilder()
	for _, r := range resources {
		message, err := r.Message()
		if err == nil {
			err = b.add(message)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
		}
	}
	return b.bootstrap(), nil
}
