package interned

import (
	"fmt"
	"strings"
)

// EntriesWith returns the number of entries whose text begins with a prefix.
func EntriesWith(prefix string) (n int) {
	entries.Range(func(k, _ any) bool {
		if strings.HasPrefix(fmt.Sprintf("%+v", k), "{text:"+prefix) {
			n++
		}
		return true
	})
	return n
}
