// Package spelling finds the names that a misspelled name is most like.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// maxSimilar is the number of names that [Similar] returns at most.
const maxSimilar = 3

// Similar returns the known names that a name is most like, the most similar first: those of at most 3 edits that are
// fewer than the bytes of the name, and those of which it is a part. The result has 3 names at most.
func Similar(name string, known []string) []string {
	distances := map[string]int{}
	for _, candidate := range known {
		edits := Distance(name, candidate)
		if edits <= 3 && edits < len(name) || name != "" && strings.Contains(candidate, name) {
			distances[candidate] = edits
		}
	}
	var similar []string
	for candidate := range distances {
		similar = append(similar, candidate)
	}
	slices.SortFunc(similar, func(a, b string) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), strings.Compare(a, b))
	})
	return similar[:min(len(similar), maxSimilar)]
}

// Distance returns the number of bytes to insert, delete or replace that make a text another one. (Levenshtein)
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
