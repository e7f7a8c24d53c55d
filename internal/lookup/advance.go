package lookup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/kind"
)

// result is the result of a lookup.
type result struct {
	addresses []string // sorted addresses that may be dialed, maxAddresses at most
	life      time.Duration
	problem   string // the reason for which there is none, or the excluded addresses
}

// find looks up a name and excludes the addresses that must not be dialed.
func (r *Runner) find(name string) *result {
	if what := kind.LocalEndpoint(name, r.State.Tables.LocalNetworks); what != "" {
		return &result{problem: "it is a name of every machine for itself"}
	}
	addresses, life, err := r.Find(name)
	if err != nil {
		return &result{problem: err.Error()}
	}
	found, excluded := &result{life: life}, []string{}
	for _, address := range addresses {
		if what := kind.LocalAddress(address, r.State.Tables.LocalNetworks); what != "" {
			excluded = append(excluded, fmt.Sprintf("%s is %s", address, what))
		} else if len(found.addresses) < maxAddresses {
			found.addresses = append(found.addresses, address.String())
		}
	}
	if len(excluded) > 0 {
		found.problem = "excluded: " + strings.Join(excluded[:min(len(excluded), maxAddresses)], ", ")
	}
	return found
}

// advance returns the row of a name after a lookup, or, with a nil result, after time alone. An address to which the
// name no longer resolves stays until it is drained. A failed lookup keeps the addresses: a failing resolver removes no
// endpoint.
func advance(row kind.ResolvedName, found *result, now time.Time, drain time.Duration) kind.ResolvedName {
	next := row
	next.Addresses = slices.DeleteFunc(slices.Clone(row.Addresses), func(a kind.ResolvedAddress) bool {
		return !a.Until.IsZero() && !now.Before(a.Until.Time)
	})
	if found == nil {
		return next
	}
	if found.problem != row.Problem {
		next.Problem, next.Since = found.problem, kind.Time{}
		if found.problem != "" {
			next.Since = kind.Time{Time: now.UTC().Truncate(time.Second)}
		}
	}
	if len(found.addresses) == 0 {
		return next
	}
	var former []kind.ResolvedAddress
	for _, a := range next.Addresses {
		if slices.Contains(found.addresses, a.Address) {
			continue
		}
		if a.Until.IsZero() {
			a.Until = kind.Time{Time: now.Add(drain).UTC()}
		}
		former = append(former, a)
	}
	slices.SortStableFunc(former, func(a, b kind.ResolvedAddress) int { return b.Until.Compare(a.Until.Time) })
	next.Addresses, next.Former = former[:min(len(former), maxAddresses)], nil
	for _, address := range found.addresses {
		next.Addresses = append(next.Addresses, kind.ResolvedAddress{Address: address})
	}
	slices.SortFunc(next.Addresses, func(a, b kind.ResolvedAddress) int {
		return strings.Compare(a.Address, b.Address)
	})
	return next
}

func equal(a, b *kind.ResolvedName) bool {
	same := func(a, b kind.ResolvedAddress) bool { return a.Address == b.Address && a.Until.Equal(b.Until.Time) }
	return a.Problem == b.Problem && slices.EqualFunc(a.Addresses, b.Addresses, same) && len(a.Former) == len(b.Former)
}
