package resource

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// ParseDuration parses a duration with years and days, of which each part is less than one of the next larger unit.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%s is not a duration such as \"30s\" or \"1d\"", QuoteShort(text))
	years, rest, err := cutUnit(text, "y", year)
	if err != nil {
		return 0, wrong
	}
	days, rest, err := cutUnit(rest, "d", day)
	if err != nil || years > 0 && days >= year {
		return 0, wrong
	}
	whole := years + days
	if rest == "" && rest != text {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	if err != nil || rest != text && (part < 0 || part >= day) {
		return 0, wrong
	}
	return whole + part, nil
}

// cutUnit cuts the number of a unit, if present, from the beginning of a duration.
func cutUnit(text, unit string, one time.Duration) (d time.Duration, rest string, err error) {
	before, rest, found := strings.Cut(text, unit)
	if !found {
		return 0, text, nil
	}
	n, err := strconv.ParseUint(before, 10, 16)
	if err != nil || n > uint64(math.MaxInt64/2/one) {
		return 0, "", strconv.ErrRange
	}
	return time.Duration(n) * one, rest, nil
}
