package console

import (
	"os"
	"strings"
	"testing"
)

func TestCommandsCanBePasted(t *testing.T) {
	var out strings.Builder
	c := &Console{Out: &out}
	c.Command("curl", "-w", ` %{http_code}\n`, "http://127.0.1.11:21001", "it's", ">", "a&b", "&")
	want := `   $ curl -w ' %{http_code}\n' http://127.0.1.11:21001 'it'\''s' > 'a&b' &` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

func TestResultsNameEveryFailure(t *testing.T) {
	var out strings.Builder
	c := &Console{Out: &out}
	c.Results([]Result{{"balanced", "10 and 10", nil}, {"denied", "", os.ErrDeadlineExceeded}})
	want := "\nok       balanced   10 and 10\nFAILED   denied     i/o timeout\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
