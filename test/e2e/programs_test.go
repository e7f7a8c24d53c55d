package e2e

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProgramsAreStripped: programs have no symbols, and only the exported methods that something calls. Templates of
// package text/template would call any method by its name.
func TestProgramsAreStripped(t *testing.T) {
	for _, name := range []string{"weft", "weft-dp"} {
		program, err := os.ReadFile(filepath.Join(binaries, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(program, []byte("main.main")) {
			t.Errorf("%s has no names of functions, which stack traces need", name)
		}
		if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
			t.Errorf("%s executes templates of text/template, so the linker keeps every exported method", name)
		}
		if _, symbols := codeOf(t, filepath.Join(binaries, name)); symbols {
			t.Errorf("%s has symbols", name)
		}
	}
}

// TestSymbolsAreOfTheSameCode: a program with symbols has the code of the one without, and its data, at the same
// addresses.
func TestSymbolsAreOfTheSameCode(t *testing.T) {
	other := filepath.Join(t.TempDir(), "weft-dp")
	build := exec.Command("go", "build", "-tags=grpcnotrace", "-ldflags=-s=0 -w=0", "-o", other, "weft/cmd/weft-dp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, _ := codeOf(t, filepath.Join(binaries, "weft-dp"))
	if code, symbols := codeOf(t, other); code != want || !symbols {
		t.Errorf("with symbols (%t), weft-dp has\n%s\nwithout\n%s", symbols, code, want)
	}
}

// codeOf returns the addresses of a program's code and data with the digest of the code, and whether it has symbols.
func codeOf(t *testing.T, program string) (code string, symbols bool) {
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text := file.Section(".text")
	instructions, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	code = fmt.Sprintf("code at %x: %x", text.Addr, sha256.Sum256(instructions))
	for _, name := range []string{".rodata", ".gopclntab", ".data", ".bss"} {
		code += fmt.Sprintf(", %s at %x", name, file.Section(name).Addr)
	}
	_, err = file.Symbols()
	return code, err == nil
}
