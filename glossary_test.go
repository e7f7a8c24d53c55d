package weft_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// retiredWord is a word that weft once had for a concept for which the field has another one.
type retiredWord struct {
	word string // a regular expression of the whole word, in lower case
	use  string // the words that replace it
	// names says that the word is retired in identifiers alone, since sentences need it.
	names bool
}

var retiredWords = []retiredWord{
	{`putout`, "evict, not admitted, deny", true},
	{`refus(e|es|ed|al|als|ing)`, "reject, NACK, deny, unauthenticated, not admitted, conflict", false},
	{`settl(e|es|ed|er|ing|ement)`, "acked, in sync, converged", false},
	{`believ(e|es|ed|ing)`, "trust, trusted", false},
	{`whom|whoever|nobody`, "the noun: the proxy, the caller, the client, the zone", false},
	{`leaf`, "certificate, workload certificate", false},
	{`leaves`, "certificates", true},
	{`doors?|gates?`, "zone proxy, zone ingress address, proxy role", false},
	{`abroad|elsewhere|foreign`, "remote zone, cross-zone", false},
	{`beyond|away`, "remote zone, cross-zone", true},
	{`passages?|passable`, "SNI route, forwardable", false},
	{`legs?`, "locality, priority", false},
	{`taking|takings`, "selected service", true},
	{`barriers|barred|obstacles?`, "unreachable, with a reason", false},
	{`class|classes`, "proxy group", false},
	{`feeds?|shelf`, "resource set", false},
	{`withdraw|withdraws|withdrawn|withdrawing|withdrawals?`, "drain, draining", false},
	{`forget|forgets|forgotten`, "drain, remove", false},
	{`servings|standing`, "listener status, endpoint status", true},
	{`siblings?|strays?`, "replica, peer, lease expired", false},
	{`patience`, "timeout", false},
	{`outlook|sightings?`, "status reporter, probe result", false},
	{`restless|orphans?|orphaned`, "pending, unowned", false},
	{`inventory|crossings?`, "digest, cross-zone request", false},
	{`behind`, "pending, lag, backends, out of sync", true},
	{`answers?|answered|answering|unasked`, "return, respond, response", true},
	{`held|hold`, "retained", true},
	{`asks?|asked|asker|asking`, "key, request, enqueue", true},
	{`figures?`, "metric, measurement", false},
}

// retiredUse is one retired word.
type retiredUse struct{ at, where, word, use string }

// identifierWords splits an identifier into its words, in lower case: "HTTPRouteID" has http, route and id.
func identifierWords(name string) []string {
	var words []string
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || !unicode.IsLetter(runes[i]) ||
			unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) &&
				unicode.IsLower(runes[i+1])) {
			if word := strings.ToLower(strings.Trim(string(runes[start:i]), "_0123456789")); word != "" {
				words = append(words, word)
			}
			start = i
		}
	}
	return words
}

var retiredPatterns = func() []*regexp.Regexp {
	var patterns []*regexp.Regexp
	for _, retired := range retiredWords {
		patterns = append(patterns, regexp.MustCompile(`^(?:`+retired.word+`)$`))
	}
	return patterns
}()

// retiredIn returns the retired word among words, in an identifier or in a sentence.
func retiredIn(words []string, identifier bool) (retiredWord, string, bool) {
	for _, word := range words {
		for i, pattern := range retiredPatterns {
			if (identifier || !retiredWords[i].names) && pattern.MatchString(word) {
				return retiredWords[i], word, true
			}
		}
	}
	return retiredWord{}, "", false
}

var sentenceWord = regexp.MustCompile(`[A-Za-z]+`)

// foreignTexts are texts of other programs and protocols, in which a retired word is right.
var foreignTexts = regexp.MustCompile(`(?i)connection refused|econnrefused|x-weft-unserved|` +
	`lookup\("nobody"\)|^"nobody"$|"refused"|refused[_-]stream|sni_foreign`)

// retiredUses returns the retired words of a file, in its identifiers, texts and comments.
func retiredUses(t *testing.T, file string, source goSource) (found []retiredUse) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, source.text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	at := func(pos token.Pos) string { return file + ":" + strconv.Itoa(files.Position(pos).Line) }
	declared := map[*ast.Ident]bool{}
	declare := func(names ...*ast.Ident) {
		for _, name := range names {
			declared[name] = true
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declare(n.Name)
		case *ast.TypeSpec:
			declare(n.Name)
		case *ast.ValueSpec:
			declare(n.Names...)
		case *ast.Field:
			declare(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					if name, ok := left.(*ast.Ident); ok {
						declare(name)
					}
				}
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !foreignTexts.MatchString(n.Value) {
				if retired, word, ok := retiredIn(sentenceWord.FindAllString(strings.ToLower(n.Value), -1),
					false); ok {
					found = append(found, retiredUse{at(n.Pos()), "a text", word, retired.use})
				}
			}
		}
		return true
	})
	for name := range declared {
		if retired, word, ok := retiredIn(identifierWords(name.Name), true); ok {
			found = append(found, retiredUse{at(name.Pos()), name.Name, word, retired.use})
		}
	}
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			if foreignTexts.MatchString(comment.Text) {
				continue
			}
			if retired, word, ok := retiredIn(sentenceWord.FindAllString(strings.ToLower(comment.Text), -1),
				false); ok {
				found = append(found, retiredUse{at(comment.Pos()), "a comment", word, retired.use})
			}
		}
	}
	return found
}

// TestRetiredWords: one concept has one word, the field's, in the whole code. A reader who searches for the word finds
// all of it.
func TestRetiredWords(t *testing.T) {
	for file, source := range goFiles(t) {
		if bytes.Contains(source.text, []byte("// Code generated ")) || path.Base(file) == "glossary_test.go" {
			continue
		}
		for _, use := range retiredUses(t, file, source) {
			t.Errorf("%s: %s has the retired word %q; use %s", use.at, use.where, use.word, use.use)
		}
	}
}

// TestGlossary: a word of docs/glossary.md is used in the code.
func TestGlossary(t *testing.T) {
	page, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for file, source := range goFiles(t) {
		if path.Base(file) != "glossary_test.go" {
			code.Write(bytes.ToLower(source.text))
		}
	}
	text := code.String()
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		word := strings.ToLower(strings.TrimSpace(cells[0]))
		if !strings.HasPrefix(line, "| ") || word == "weft" {
			continue
		}
		rows++
		if len(cells) != 5 {
			t.Errorf("docs/glossary.md: the row of %q has %d cells, want 5", word, len(cells))
		}
		identifier := strings.NewReplacer(" ", "", "-", "").Replace(word)
		if !strings.Contains(text, word) && !strings.Contains(text, identifier) {
			t.Errorf("docs/glossary.md has %q, which is nowhere in the code", word)
		}
	}
	if rows == 0 {
		t.Error("docs/glossary.md has no row")
	}
	for _, linking := range []string{"README.md", "docs/concepts.md"} {
		if text, err := os.ReadFile(linking); err != nil || !bytes.Contains(text, []byte("glossary.md")) {
			t.Errorf("%s does not link to the glossary", linking)
		}
	}
}

// outsideNames are the names that others see: of stored and wire fields, metrics, findings and kinds.
var outsideNames = []*regexp.Regexp{
	regexp.MustCompile("`json:\"(\\w+)"),
	regexp.MustCompile(`"(weft_\w+)"`),
	regexp.MustCompile(`&Problem\{"([\w-]+)"`),
	regexp.MustCompile(`resource\.Info\{\s*Name: "(\w+)", Plural: "[\w-]+"`),
	regexp.MustCompile(`Type: "(\w+)", Status:`),
	regexp.MustCompile(`Reason: "(\w+)"`),
}

// TestRetiredNames: what is stored, sent or read by programs gets dearer to rename with every release.
func TestRetiredNames(t *testing.T) {
	names := map[string]string{} // by name, a file that has it
	for file, source := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, pattern := range outsideNames {
			for _, found := range pattern.FindAllSubmatch(source.text, -1) {
				names[string(found[1])] = file
			}
		}
	}
	protos := 0
	for _, file := range listed(t) {
		if path.Ext(file) != ".proto" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		protos++
		for line := range strings.Lines(string(text)) {
			declaration, _, _ := strings.Cut(line, "//")
			for _, word := range regexp.MustCompile(`\w+`).FindAllString(declaration, -1) {
				names[word] = file
			}
		}
	}
	if protos == 0 || len(names) < 100 {
		t.Fatalf("%d names, %d files of wire messages: the patterns find nothing", len(names), protos)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if retired, word, found := retiredIn(nameWords(name), true); found {
			t.Errorf("%s: the name %s has the retired word %q; use %s", names[name], name, word, retired.use)
		}
	}
}

// nameWords splits a name of any form into its words.
func nameWords(name string) []string {
	var words []string
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' }) {
		words = append(words, identifierWords(part)...)
	}
	return words
}
