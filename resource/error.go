package resource

import (
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error for those who must react to it. Anything without a code is internal, and its
// text never reaches a user.
type Code int

const (
	Internal     Code = iota
	Invalid           // the request is wrong; Problems say where
	Unauthorized      // the caller did not prove who it is
	Forbidden         // the caller is known and may not
	NotFound          // no such resource
	Conflict          // it exists already, or another owner has it
	Stale             // the version it was based on is not the current one
	Unavailable       // try again later: a full disk, a store that is down
)

// Problem is one thing that is wrong with one field.
type Problem struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Problems are all that is wrong with one resource.
type Problems []Problem

// Add appends a problem. The reason says what is wrong and what would be right. After [MaxProblems] it adds once that
// there are more, and then nothing.
func (p *Problems) Add(field, format string, args ...any) {
	switch {
	case len(*p) > MaxProblems:
		return
	case len(*p) == MaxProblems:
		field, format, args = "", "there are more problems; these are the first %d", []any{MaxProblems}
	}
	*p = append(*p, Problem{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// Error is an error that may be shown to users.
type Error struct {
	Code     Code
	Detail   string
	Problems Problems
	// Cause is for the log; it is not shown.
	Cause error

	unknownType string
}

// UnknownType returns the type that a document names and that is not a kind; empty: the error is about something else.
func UnknownType(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.unknownType
	}
	return ""
}

// Unwrap answers the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error implements error: the detail, and then every problem.
func (e *Error) Error() string {
	if len(e.Problems) == 0 {
		return e.Detail
	}
	var b strings.Builder
	b.WriteString(e.Detail)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s: %s", p.Field, p.Reason)
	}
	return b.String()
}

// Errorf makes an error that may be shown to users.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// CodeOf answers the code of an error, [Internal] where it has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
