package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
)

// TestAReplacedCAIsWrittenIntoNamespacesAgain: the CA of the namespaces follows the file, and a file that can't be read
// for a moment changes nothing.
func TestAReplacedCAIsWrittenIntoNamespacesAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var file atomic.Pointer[string]
		first, next := "first", "next"
		file.Store(&first)
		read := func() ([]byte, error) {
			if text := file.Load(); text != nil {
				return []byte(*text), nil
			}
			return nil, errors.New("it is being replaced")
		}
		var changed atomic.Bool
		go func() { awaitChange(ctx, read, caInterval); changed.Store(true) }()
		expect := func(when string, want bool) {
			t.Helper()
			time.Sleep(caInterval)
			synctest.Wait()
			if changed.Load() != want {
				t.Errorf("%s: the CA is written again: %t", when, !want)
			}
		}
		expect("unchanged", false)
		file.Store(nil)
		expect("not readable", false)
		file.Store(&next)
		expect("replaced", true)
	})
}
