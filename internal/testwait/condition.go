package testwait

import (
	"errors"
	"testing"
)

// errNever is the error of a condition that does not say why it does not hold.
var errNever = errors.New("it never happens")

// UntilTrue is [Until] for a condition that has nothing to say while it does not hold.
func UntilTrue(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if !holds() {
			return errNever
		}
		return nil
	})
}
