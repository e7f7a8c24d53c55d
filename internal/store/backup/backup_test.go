package backup_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft/internal/store"
	"weft/internal/store/backup"
	"weft/resource"
)

var at = time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)

func sample() []store.Row {
	owner := resource.Key{Kind: "Mesh", Name: "default"}
	return []store.Row{
		{Key: owner, Created: at, Modified: at.Add(time.Hour), Body: []byte(`{"spec":{}}`)},
		{Key: resource.Key{Kind: "Secret", Mesh: "default", Name: "s"}, Owner: &owner, Created: at, Modified: at,
			Body: []byte("\x00weft\x01\xff\xfe")},
	}
}

func write(t testing.TB, h backup.Header, rows []store.Row) []byte {
	t.Helper()
	var file bytes.Buffer
	err := backup.Write(&file, h, func(take func(store.Row) error) error {
		for _, row := range rows {
			if err := take(row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(file []byte) (h backup.Header, got []store.Row, err error) {
	h, rows, err := backup.Read(bytes.NewReader(file))
	if err != nil {
		return h, nil, err
	}
	for row, err := range rows {
		if err != nil {
			return h, got, err
		}
		got = append(got, row)
	}
	return h, got, nil
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	h := backup.Header{Created: at, Release: "v1", Keys: "a\nb\n"}
	for _, rows := range [][]store.Row{nil, sample()} {
		got, back, err := read(write(t, h, rows))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rows, back); diff != "" {
			t.Errorf("the rows differ: %s", diff)
		}
		if got.Release != "v1" || !got.Created.Equal(at) || got.Keys != h.Keys {
			t.Errorf("the header is %+v", got)
		}
	}
}

// TestNoDamageIsTakenForABackup cuts a backup off at every byte, and changes every one.
func TestNoDamageIsTakenForABackup(t *testing.T) {
	whole := write(t, backup.Header{Created: at}, sample())
	intact := fmt.Sprint(read(whole))
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 0x10
		for what, file := range map[string][]byte{"cut off": whole[:i], "changed": changed} {
			if got := fmt.Sprint(read(file)); strings.HasSuffix(got, "<nil>") && got != intact {
				t.Errorf("a backup that is %s at byte %d of %d was read: %s", what, i, len(whole), got)
			}
		}
	}
	if _, _, err := read([]byte("PK\x03\x04")); err == nil || !strings.Contains(err.Error(), "no backup of weft") {
		t.Errorf("another file: %v", err)
	}
}

// FuzzRead holds that no file makes reading it fail in another way than by saying so, and that what is read to
// no other process wrote its end.
func FuzzRead(f *testing.F) {
	f.Add(write(f, backup.Header{Created: at, Release: "v1"}, sample()))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	f.Fuzz(func(t *testing.T, file []byte) {
		h, rows, err := read(file)
		if err != nil {
			return
		}
		again, back, err := read(write(t, h, rows))
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		if diff := cmp.Diff([]any{h.Release, h.Keys, rows}, []any{again.Release, again.Keys, back}); diff != "" {
			t.Errorf("written again it differs: %s", diff)
		}
	})
}
