package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"weft/internal/wire"
)

func TestOnlyPagesThatReadCanBeAskedFor(t *testing.T) {
	for _, c := range []struct {
		question *wire.InspectionRequest
		want     string // empty: refused
	}{
		{&wire.InspectionRequest{Page: wire.Page_PAGE_CONFIG_DUMP}, "/config_dump"},
		{&wire.InspectionRequest{Page: wire.Page_PAGE_CONFIG_DUMP, Endpoints: true}, "/config_dump?include_eds"},
		{&wire.InspectionRequest{Page: wire.Page_PAGE_STATS, Json: true}, "/stats?format=json"},
		{&wire.InspectionRequest{Page: wire.Page_PAGE_SERVER_INFO}, "/server_info"},
		{&wire.InspectionRequest{}, ""},
		{&wire.InspectionRequest{Page: 99}, ""},
	} {
		if path, err := pagePath(c.question); path != c.want || (err == nil) == (c.want == "") {
			t.Errorf("%v is asked for at %q, %v; want %q", c.question, path, err, c.want)
		}
	}
}

// adminOf is the agent's view of an administration interface that a handler plays.
func adminOf(t *testing.T, handler http.HandlerFunc) *admin {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(at.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return newAdmin(&room{}, &wire.Settings{AdminPort: uint32(port)})
}

func TestALargePageIsReadPieceByPiece(t *testing.T) {
	const size = 10 << 20
	a := adminOf(t, func(w http.ResponseWriter, _ *http.Request) { io.CopyN(w, endless{}, size) })
	read, largest := 0, 0
	err := a.page(t.Context(), "/config_dump", func(part []byte) error {
		read, largest = read+len(part), max(largest, len(part))
		return nil
	})
	if err != nil || read != size || largest > partBytes {
		t.Errorf("read %d bytes, %d at most at once, %v; want %d and %d", read, largest, err, size, partBytes)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestAPageThatEnvoyDoesNotTellWholeIsAnError(t *testing.T) {
	gone := errors.New("nobody waits any more")
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		taken   error
		want    string
	}{
		"not found": {http.NotFound, nil, "404 Not Found"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			fmt.Fprint(w, "half")
		}, nil, "unexpected EOF"},
		"not taken": {func(w http.ResponseWriter, _ *http.Request) { io.CopyN(w, endless{}, 1<<20) }, gone,
			gone.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := adminOf(t, c.handler).page(t.Context(), "/clusters", func([]byte) error { return c.taken })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}
