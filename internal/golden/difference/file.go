package difference

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// ReadFile returns a scenario with complete goldens. The name of a base is that of a scenario in the same folder, for
// its section of the same name, or SCENARIO/SECTION.
func ReadFile(path string) (*txtar.Archive, error) {
	scenario, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	for i := range scenario.Files {
		section := &scenario.Files[i]
		if section.Data, err = expandSection(path, section, nil); err != nil {
			return nil, err
		}
	}
	return scenario, nil
}

// FormatFile returns a scenario with complete goldens as the text of its file: those that are differences before become
// differences from the same base.
func FormatFile(path string, before, scenario *txtar.Archive) (*txtar.Archive, error) {
	formatted := &txtar.Archive{Comment: scenario.Comment, Files: slices.Clone(scenario.Files)}
	for i := range formatted.Files {
		section := &formatted.Files[i]
		was := find(before, section.Name)
		if was == nil {
			continue
		}
		name, ok := Base(string(was.Data))
		if !ok {
			continue
		}
		base, err := baseOf(path, was, scenario)
		if err != nil {
			return nil, err
		}
		text, err := Format(name, string(base), string(section.Data))
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", path, section.Name, err)
		}
		section.Data = []byte(text)
	}
	return formatted, nil
}

// baseOf returns the base of a section, which may be in the same, complete scenario.
func baseOf(path string, section *txtar.File, scenario *txtar.Archive) ([]byte, error) {
	file, name := basePlace(path, section)
	if base := find(scenario, name); file == path && base != nil {
		return base.Data, nil
	}
	return readBase(path, section, nil)
}

func find(scenario *txtar.Archive, section string) *txtar.File {
	for i := range scenario.Files {
		if scenario.Files[i].Name == section {
			return &scenario.Files[i]
		}
	}
	return nil
}

// readBase reads a base; above are the goldens whose base it is.
func readBase(path string, section *txtar.File, above []string) ([]byte, error) {
	name, _ := Base(string(section.Data))
	file, base := basePlace(path, section)
	here := path + " " + section.Name
	if slices.Contains(above, here) {
		return nil, fmt.Errorf("%s is a base of itself, by %s", here, strings.Join(above, ", "))
	}
	scenario, err := txtar.ParseFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s, base %s: %w", here, name, err)
	}
	if found := find(scenario, base); found != nil {
		return expandSection(file, found, append(above, here))
	}
	return nil, fmt.Errorf("%s, base %s: %s has no section %q", here, name, file, base)
}

// basePlace returns the file and the section that a section names as its base.
func basePlace(path string, section *txtar.File) (file, base string) {
	name, _ := Base(string(section.Data))
	scenario, base, ok := strings.Cut(name, "/")
	if !ok {
		base = section.Name
	}
	return filepath.Join(filepath.Dir(path), scenario+".txtar"), base
}

func expandSection(path string, section *txtar.File, above []string) ([]byte, error) {
	name, ok := Base(string(section.Data))
	if !ok {
		return section.Data, nil
	}
	base, err := readBase(path, section, above)
	if err != nil {
		return nil, err
	}
	golden, err := Expand(string(section.Data), string(base))
	if err != nil {
		return nil, fmt.Errorf("%s %s is no difference from its base %s; if the base is right, run with -update: %w",
			path, section.Name, name, err)
	}
	return []byte(golden), nil
}

// BasesFirst returns scenarios in an order in which each comes after the bases of its goldens.
func BasesFirst(paths []string) ([]string, error) {
	var order []string
	var visit func(path string) error
	visited := map[string]bool{}
	visit = func(path string) error {
		if visited[path] {
			return nil
		}
		visited[path] = true
		scenario, err := txtar.ParseFile(path)
		if err != nil {
			return err
		}
		for i := range scenario.Files {
			if _, ok := Base(string(scenario.Files[i].Data)); !ok {
				continue
			}
			if file, _ := basePlace(path, &scenario.Files[i]); file != path {
				if err := visit(file); err != nil {
					return err
				}
			}
		}
		if slices.Contains(paths, path) {
			order = append(order, path)
		}
		return nil
	}
	for _, path := range paths {
		if err := visit(path); err != nil {
			return nil, err
		}
	}
	return order, nil
}
