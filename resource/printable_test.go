package resource_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"weft/resource"
)

// hostileText has what a terminal would act on: an escape sequence, C1, bidirectional overrides, invisible characters.
const hostileText = "a\x1b]0;title\a\u009b2J\u202eb\u200b\r\x7f\U000e0001\u2028c"

// TestQuote: a text of others has no character that a terminal acts on, and JSON keeps its value.
func TestQuote(t *testing.T) {
	want := `a\u001b]0;title\u0007\u009b2J\u202eb\u200b\u000d\u007f\udb40\udc01\u2028c`
	if got := resource.Quote(hostileText); got != want {
		t.Errorf("the text is %s, want %s", got, want)
	}
	for text, want := range map[string]string{"é 漢字 😀 \n\t ~": "é 漢字 😀 \n\t ~", "a\xffb": `a\ufffdb`} {
		if got := resource.Quote(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	document, err := json.Marshal(hostileText)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(resource.Quote(string(document))), &got); err != nil || got != hostileText {
		t.Errorf("the value of the JSON document is %q (%v), want %q", got, err, hostileText)
	}
}

// TestPrintableLine: a stored text of others is one printable line of valid UTF-8, within its bound.
func TestPrintableLine(t *testing.T) {
	for text, want := range map[string]string{
		"two\r\n lines\t": "two lines", "\x1b[2J": `\u001b[2J`, "ééé": "ééé", "": "",
		strings.Repeat("é", 600):       strings.Repeat("é", 15),
		"x" + strings.Repeat("é", 600): "x" + strings.Repeat("é", 14),
	} {
		got := resource.PrintableLine(text, 30)
		if got != want || !utf8.ValidString(got) || len(got) > 30 {
			t.Errorf("%q is %q of %d bytes, want %q", text, got, len(got), want)
		}
	}
}
