package nameserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/miekg/dns"
)

// dnsPort is where resolvers of resolv.conf answer.
const dnsPort = 53

// resolvers are those that the machine asks.
type resolvers struct {
	given []netip.AddrPort // empty: of the file
	file  string
	port  int // our own

	mu   sync.Mutex
	seen fs.FileInfo // the file as it was read
	read []netip.AddrPort
	err  error
}

func newResolvers(c Config) *resolvers {
	return &resolvers{given: c.Resolvers, file: c.ResolvConf, port: c.Port}
}

// current answers at least one resolver, as the file has them now. We are none of them.
func (r *resolvers) current() ([]netip.AddrPort, error) {
	if len(r.given) > 0 {
		return r.others(r.given, "the resolvers that are given")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := os.Stat(r.file)
	if err != nil {
		return nil, err
	}
	if r.seen == nil || !os.SameFile(now, r.seen) || !now.ModTime().Equal(r.seen.ModTime()) ||
		now.Size() != r.seen.Size() {
		r.seen = now
		if r.read, r.err = ReadResolvConf(r.file); r.err == nil {
			r.read, r.err = r.others(r.read, r.file)
		}
	}
	return r.read, r.err
}

func (r *resolvers) others(all []netip.AddrPort, where string) ([]netip.AddrPort, error) {
	others := slices.DeleteFunc(slices.Clone(all), func(a netip.AddrPort) bool {
		return int(a.Port()) == r.port && slices.Contains(loopback, a.Addr().Unmap())
	})
	if len(others) == 0 {
		return nil, fmt.Errorf("%s name no resolver but this one; name others with --dns-resolvers", where)
	}
	return others, nil
}

// ReadResolvConf answers the resolvers of a resolv.conf(5), of which it must name one.
func ReadResolvConf(file string) ([]netip.AddrPort, error) {
	config, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, err
	}
	var found []netip.AddrPort
	for _, server := range config.Servers {
		if address, err := netip.ParseAddr(server); err == nil {
			found = append(found, netip.AddrPortFrom(address, dnsPort))
		}
	}
	if len(found) == 0 {
		return nil, errors.New(file + " names no resolver")
	}
	return found, nil
}

// ParseResolver reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; without a port it is 53.
func ParseResolver(text string) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(address, dnsPort), nil
	}
	resolver, err := netip.ParseAddrPort(text)
	if err != nil || resolver.Port() == 0 {
		return netip.AddrPort{},
			fmt.Errorf(
				"%q is no resolver, want an IP address with or without a port, for example 10.0.0.2 or 10.0.0.2:53",
				text)
	}
	return resolver, nil
}
