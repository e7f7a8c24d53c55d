package difference

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// edit is what differs at a segment of a path: its value, or what is below it.
type edit struct {
	mark    string // "+", "-", or nothing for another value
	segment string
	value   any
	below   []edit // nil: the value as a whole
}

// height returns the lines of a value in YAML, below the line of its key.
func height(value any) int {
	lines := 0
	switch value := value.(type) {
	case object:
		for _, field := range value {
			lines += 1 + height(field)
		}
	case []any:
		for _, element := range value {
			lines += max(1, height(element))
		}
	}
	return lines
}

// lines returns how long an edit is when it is written.
func (e *edit) lines() int {
	if e.below == nil {
		return 1 + height(e.value)
	}
	if len(e.below) == 1 {
		return e.below[0].lines()
	}
	return 1 + linesOf(e.below)
}

func linesOf(edits []edit) int {
	lines := 0
	for i := range edits {
		lines += edits[i].lines()
	}
	return lines
}

// compare returns the edits that make a value from the base; nil if only the value as a whole can replace it.
func compare(base, value any) []edit {
	switch base := base.(type) {
	case object:
		if value, ok := value.(object); ok {
			return compareObjects(base, value)
		}
	case []any:
		if value, ok := value.([]any); ok {
			return compareLists(base, value)
		}
	}
	return nil
}

// editAt returns the shorter of two edits at a segment: with the edits below it, or with the whole value.
func editAt(segment string, base, value any) edit {
	whole := edit{segment: segment, value: value}
	parts := edit{segment: segment, below: compare(base, value)}
	if parts.below == nil || parts.lines() > whole.lines() {
		return whole
	}
	return parts
}

func compareObjects(base, value object) []edit {
	edits := []edit{}
	for key := range base {
		if _, has := value[key]; !has {
			edits = append(edits, edit{mark: "-", segment: fmt.Sprint(key)})
		}
	}
	for key, is := range value {
		was, had := base[key]
		switch {
		case !had:
			edits = append(edits, edit{mark: "+", segment: fmt.Sprint(key), value: is})
		case !reflect.DeepEqual(was, is):
			edits = append(edits, editAt(fmt.Sprint(key), was, is))
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.segment, b.segment) })
	return edits
}

// segments returns the segments of a list's elements. A name that is a place of inserted elements is none.
func segments(list []any) []string {
	names := make([]string, len(list))
	positions := make([]string, len(list))
	unique := map[string]bool{}
	for i, element := range list {
		fields, _ := element.(object)
		names[i], _ = fields["name"].(string)
		positions[i] = strconv.Itoa(i)
		if names[i] == placeFirst || strings.HasPrefix(names[i], placeAfter) {
			names[i] = ""
		}
		unique[names[i]] = true
	}
	if unique[""] || len(unique) < len(list) {
		return positions
	}
	return names
}

// alignment is the shortest list of edits between two lists, found from their ends: rest[i][j] makes value[j:] from
// base[i:].
type alignment struct {
	base, value []any
	segments    []string
	rest        [][]step
}

// step is the first thing to do for the rest of two lists, and the lines of the whole rest.
type step struct {
	lines  int
	action action
	edit   *edit // of change
}

type action int

const (
	keep action = iota
	change
	remove
	insert
)

func compareLists(base, value []any) []edit {
	a := &alignment{base: base, value: value, segments: segments(base), rest: make([][]step, len(base)+1)}
	for i := len(base); i >= 0; i-- {
		a.rest[i] = make([]step, len(value)+1)
		for j := len(value); j >= 0; j-- {
			a.rest[i][j] = a.best(i, j)
		}
	}
	return a.edits()
}

// best returns the step that makes the edits of a rest shortest. Where both are equal, an element is another one rather
// than changed.
func (a *alignment) best(i, j int) step {
	var best *step
	consider := func(s step) {
		if best == nil || s.lines < best.lines {
			best = &s
		}
	}
	inBase, inValue := i < len(a.base), j < len(a.value)
	if inBase && inValue && reflect.DeepEqual(a.base[i], a.value[j]) {
		consider(step{lines: a.rest[i+1][j+1].lines, action: keep})
	}
	if inBase {
		consider(step{lines: 1 + a.rest[i+1][j].lines, action: remove})
	}
	if inValue {
		consider(step{lines: 1 + max(1, height(a.value[j])) + a.rest[i][j+1].lines, action: insert})
	}
	if inBase && inValue {
		e := editAt(a.segments[i], a.base[i], a.value[j])
		consider(step{lines: e.lines() + a.rest[i+1][j+1].lines, action: change, edit: &e})
	}
	if best == nil {
		return step{}
	}
	return *best
}

func (a *alignment) edits() []edit {
	edits := []edit{}
	for i, j := 0, 0; i < len(a.base) || j < len(a.value); {
		s := a.rest[i][j]
		switch s.action {
		case change:
			edits = append(edits, *s.edit)
		case remove:
			edits = append(edits, edit{mark: "-", segment: a.segments[i]})
		case insert:
			edits = a.inserted(edits, i, a.value[j])
		}
		if s.action != insert {
			i++
		}
		if s.action != remove {
			j++
		}
	}
	return edits
}

// inserted adds an element that comes before base[i] to the edits.
func (a *alignment) inserted(edits []edit, i int, element any) []edit {
	place := placeFirst
	if i > 0 {
		place = placeAfter + a.segments[i-1]
	}
	if n := len(edits); n > 0 && edits[n-1].mark == "+" && edits[n-1].segment == place {
		edits[n-1].value = append(edits[n-1].value.([]any), element)
		return edits
	}
	return append(edits, edit{mark: "+", segment: place, value: []any{element}})
}

// Segments of elements that are inserted into a list.
const (
	placeFirst = "first"
	placeAfter = "after "
)
