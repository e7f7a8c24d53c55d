package resource

import (
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error for its handlers. An error without a code is internal, and its text is never sent to a user.
type Code int

// The codes. Internal is the code of an error that has none.
const (
	Internal     Code = iota
	Invalid           // the request is invalid; Problems has the reasons
	Unauthorized      // the caller is unauthenticated
	Forbidden         // the caller is authenticated and denied
	NotFound          // no such resource
	Conflict          // it already exists, or another owner has it
	Stale             // its version is not the current one
	Unavailable       // try again later: a full disk, a store that is down
)

// Problem is one problem of one field.
type Problem struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// String returns the field and the reason; the reason alone where no field has the problem.
func (p Problem) String() string { return strings.TrimPrefix(p.Field+": "+p.Reason, ": ") }

// Problems are all problems of one resource.
type Problems []Problem

// Add appends a problem. The reason states the problem and a valid value. After [MaxProblems] problems, it adds one
// that there are more, and then none.
func (p *Problems) Add(field, format string, args ...any) {
	switch {
	case len(*p) > MaxProblems:
		return
	case len(*p) == MaxProblems:
		field, format, args = "", "there are more problems; these are the first %d", []any{MaxProblems}
	}
	*p = append(*p, Problem{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// Append appends problems as [Problems.Add] does.
func (p *Problems) Append(more Problems) {
	for _, problem := range more {
		p.Add(problem.Field, "%s", problem.Reason)
	}
}

// Error is an error whose text may be sent to users.
type Error struct {
	Code     Code
	Detail   string
	Problems Problems
	// Cause is for the log; users do not get it.
	Cause error

	unknownType string
}

// UnknownType returns the type of a document that is not a kind, or an empty string for any other error.
func UnknownType(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.unknownType
	}
	return ""
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error implements error: the detail, followed by every problem.
func (e *Error) Error() string {
	if len(e.Problems) == 0 {
		return e.Detail
	}
	var b strings.Builder
	b.WriteString(e.Detail)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Line returns the text of an error as one line. Tables, events and conditions of Kubernetes need one, since kubectl
// cuts a cell at its first line break. The problems come before the detail, each with its field, because long texts
// lose their end.
func Line(err error) string {
	e, ok := err.(*Error)
	if !ok || len(e.Problems) == 0 {
		return OneLine(err.Error())
	}
	var all []string
	for _, p := range e.Problems {
		all = append(all, p.String())
	}
	return OneLine(fmt.Sprintf("%s (%s)", strings.Join(all, "; "), e.Detail))
}

// OneLine returns a text with all of its white space, line breaks too, as single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Errorf returns an error whose text may be sent to users.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of an error, [Internal] for an error without a code.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
