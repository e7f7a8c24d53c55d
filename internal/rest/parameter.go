package rest

import (
	"strconv"

	"weft/resource"
)

// readNumber reads a parameter of a query that is a number, or adds a problem.
func readNumber(problems *resource.Problems, field, value string, least, most int) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		problems.Add(field, "%.100q is not a number from %d to %d", value, least, most)
	}
	return n
}
