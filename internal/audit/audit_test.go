package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/kind"
	"weft/resource"
)

var ann = access.NewUser("ann", nil, access.ByUserToken)

// disk is a writer that fails while it is full.
type disk struct {
	bytes.Buffer
	full bool
}

func (d *disk) Write(p []byte) (int, error) {
	if d.full {
		return 0, &fs.PathError{Op: "write", Path: "/data/audit.log", Err: errors.New("no space left on device")}
	}
	return d.Buffer.Write(p)
}

// A write that ended while the disk filled is recorded later; a write that has not begun is rejected until then.
func TestNothingIsDoneThatCannotBeRecorded(t *testing.T) {
	var out disk
	var text bytes.Buffer
	l := New(&out, "cp-1", time.Now, slog.New(slog.NewTextHandler(&text, nil)))
	first, err := l.Begin(ann, "192.0.2.7:1", "PUT /meshes/a", access.Write)
	if err != nil {
		t.Fatal(err)
	}
	if failure := l.Failure(); failure != (Failure{}) {
		t.Errorf("before the disk is full: %+v", failure)
	}
	out.full = true
	first.End(200, nil)
	if _, err := l.Begin(ann, "192.0.2.7:1", "PUT /meshes/b",
		access.Write); resource.CodeOf(err) != resource.Unavailable || strings.Contains(err.Error(), "space") {
		t.Errorf("with a full disk: %v", err)
	}
	l.Record(ann, "192.0.2.7:1", "Register", "").End(200, nil) // an agent's
	if failure := l.Failure(); failure.Since.IsZero() || failure.Reason != "no space left on device" {
		t.Errorf("with a full disk: %+v", failure)
	}
	out.full = false
	if failure := l.Failure(); failure != (Failure{}) {
		t.Errorf("after the disk is full: %+v", failure)
	}
	last, err := l.Begin(ann, "192.0.2.7:1", "PUT /meshes/c", access.Write)
	if err != nil {
		t.Fatal(err)
	}
	last.End(0, errors.New("of the inside"))
	var requests []string
	for line := range strings.Lines(out.String()) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Status != 200 || e.Error != "" {
			t.Fatalf("%v: %s", err, line)
		}
		requests = append(requests, e.Request)
	}
	if want := []string{"PUT /meshes/a", "Register", "PUT /meshes/c"}; !slices.Equal(requests, want) {
		t.Errorf("recorded %q, want %q", requests, want)
	}
	if !strings.Contains(text.String(), "no space left") {
		t.Errorf("the log is silent: %s", &text)
	}
}

func TestALogThatKeepsNothing(t *testing.T) {
	l := New(nil, "cp-1", time.Now, nil)
	r, err := l.Begin(ann, "", "PUT /meshes/a", access.Write)
	if err != nil {
		t.Fatal(err)
	}
	ctx := WithRecord(context.Background(), r)
	FromContext(ctx).SetChange(nil, kind.Meshes.Make("", "a", kind.Mesh{}))
	FromContext(ctx).SetToken("user-token", nil)
	FromContext(context.Background()).End(200, nil)
}

func TestSecretsAreMasked(t *testing.T) {
	all := []resource.Any{kind.GlobalSecrets.Make("", "shown", kind.Secret{Data: []byte("swordfish")})}
	for _, text := range []string{
		`{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Bundled, bundled: {ca: {
		  certificate: {type: InsecureInline, insecureInline: {value: swordfish}},
		  privateKey: {type: Secret, secretRef: {kind: Secret, name: shown}}}}}}}`,
		`{type: Mesh, name: m, mtls: {enabledBackend: shown, backends: [
		  {name: shown, type: provided, conf: {cert: {inlineString: swordfish}, key: {inline: c3dvcmRmaXNo}}}]}}`,
		`{type: MeshExternalService, mesh: m, name: api, spec: {match: {port: 443}, endpoints: [
		  {address: shown.example.com, port: 443}], tls: {enabled: true, verification: {
		  clientCert: {type: Secret, secretRef: {kind: Secret, name: shown}},
		  clientKey: {type: InsecureInline, insecureInline: {value: swordfish}}}}}}`,
	} {
		o, err := resource.Parse([]byte(text), kind.ByName)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	secret := kind.Secrets.Make("m", "s", kind.Secret{Data: []byte("swordfish")})
	secret.Labels = map[string]string{"team": "shown"}
	for _, o := range append(all, secret) {
		body, err := Mask(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(body); strings.Contains(got, "swordfish") || strings.Contains(got, "c3dvcmRmaXNo") ||
			!strings.Contains(got, mask) || !strings.Contains(got, "shown") {
			t.Errorf("%s: %s", o.Key(), got)
		}
	}
}

// Every field of a resource with a value in plain sight has the word `secret`: those with "inline" in their name, or in
// the name of the field that has them, and the value of a Secret.
func TestValuesInPlainSightAreSecret(t *testing.T) {
	seen, found := map[reflect.Type]bool{}, 0
	var walk func(path string, t reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := strings.ToLower(path[strings.LastIndexByte(path, '.')+1:] + "." + name)
			if isText := field.Type.Kind() == reflect.String || field.Type == reflect.TypeFor[[]byte](); isText &&
				(strings.Contains(at, "inline") || typ == reflect.TypeFor[kind.Secret]()) {
				found++
				if !resource.RulesOf(field).Secret {
					t.Errorf("%s.%s is not secret", path, name)
				}
			}
			walk(path+"."+name, field.Type)
		}
	}
	for _, d := range kind.All() {
		walk(d.Describe().Name, reflect.TypeOf(resource.SpecOf(d.New())))
	}
	if found != 4 {
		t.Errorf("%d such fields, want those of DataSource, LegacyDataSource (2) and Secret", found)
	}
}

func TestAFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := OpenFile(path, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"aaaa\n", "bbbb\n", "cccc\n", "longer than a file\n", "dddd\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenFile(path, 10, 2) // a restart goes on where it was
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("eeee\n")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "dddd\neeee\n", path + ".1": "longer than a file\n",
		path + ".2": "cccc\n"} {
		got, err := os.ReadFile(name)
		if info, statErr := os.Stat(name); err != nil || string(got) != want || statErr != nil ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %q, want %q (%v)", filepath.Base(name), got, want, err)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("too many older files are kept")
	}
}
