package nameserver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Lookup resolves host names for its own process as this machine does: by the hosts file, then by the resolvers,
// through the search domains. It does not listen.
type Lookup struct{ external *External }

// NewLookup returns a Lookup. Suffix and Local of the configuration have no effect.
func NewLookup(c ExternalConfig) *Lookup { return &Lookup{NewExternal(c)} }

// Addresses returns the IPv4 addresses of a name, where it has none its IPv6 addresses, sorted, and their time to live.
// It returns an error where a resolver fails or does not respond, after a few seconds at most for each search domain,
// and where the name has no address.
func (l *Lookup) Addresses(name string) (addresses []netip.Addr, life time.Duration, err error) {
	for _, of := range []uint16{dns.TypeA, dns.TypeAAAA} {
		found, rcode := l.external.lookUp(strings.ToLower(name), of, nil)
		if rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError {
			return nil, 0, fmt.Errorf("no resolver has an answer: %s", dns.RcodeToString[rcode])
		}
		if len(found) == 0 {
			continue
		}
		for _, record := range found {
			addresses = append(addresses, record.address.Unmap())
			life = time.Duration(record.seconds) * time.Second
		}
		slices.SortFunc(addresses, netip.Addr.Compare)
		return slices.Compact(addresses), life, nil
	}
	return nil, 0, fmt.Errorf("the name has no address")
}
