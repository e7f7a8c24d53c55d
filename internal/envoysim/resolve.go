package envoysim

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/service"
)

// reach is one address at which a proxy reaches a destination.
type reach struct {
	Address
	bound       bool
	destination string                 // its name
	key         service.DestinationKey // of the destination; without a service where the name has none
}

// resolve returns the address that the application dials for a service, a virtual IP or an address, with or without a
// port. Without a port, the destination must be unambiguous.
func (c *Config) resolve(to string) (Address, error) {
	host, port, err := splitTarget(to)
	if err != nil {
		return Address{}, err
	}
	ways, err := c.reaches()
	if err != nil {
		return Address{}, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return resolveAddress(ways, host, port)
	}
	return resolveService(ways, host, port)
}

// splitTarget splits "host", "host:port", "[::1]:port" and "::1". The port is 0 where there is none.
func splitTarget(to string) (host string, port uint32, err error) {
	if _, err := netip.ParseAddr(to); err == nil || !strings.Contains(to, ":") {
		return to, 0, nil
	}
	host, text, err := net.SplitHostPort(to)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("%q is not a port: use 1 to 65535", text)
	}
	return host, uint32(number), nil
}

func resolveAddress(ways []reach, host string, port uint32) (Address, error) {
	if port != 0 {
		return Address{host, port}, nil
	}
	ways = slices.DeleteFunc(slices.Clone(ways), func(w reach) bool { return w.Address.Address != host })
	switch len(ways) {
	case 0:
		return Address{},
			fmt.Errorf(
				"the proxy has no listener at this address; with a port, the connection may be forwarded unchanged")
	case 1:
		return ways[0].Address, nil
	}
	return Address{}, fmt.Errorf("the address has several ports, specify one: %s", list(ways))
}

func resolveService(ways []reach, name string, port uint32) (Address, error) {
	var found []reach
	for _, way := range ways {
		named := way.destination == name || way.key.Service != "" && way.key.HasName(name)
		if named && (port == 0 || way.key.Port == port) {
			found = append(found, way)
		}
	}
	if len(found) == 0 {
		return Address{}, fmt.Errorf("the proxy reaches no such service; it reaches %s", list(ways))
	}
	for _, way := range found {
		if way.key.Port != found[0].key.Port {
			return Address{}, fmt.Errorf("the service has several ports, specify one: %s", list(found))
		}
		if way.destination != found[0].destination {
			return Address{},
				fmt.Errorf("several services have this name, specify one by its address or destination: %s",
					listDestinations(found))
		}
	}
	return found[0].Address, nil
}

// reaches returns the outbound listeners with their destinations, those that bind a port first. Internal listeners have
// no address that an application dials.
func (c *Config) reaches() ([]reach, error) {
	var ways []reach
	for _, l := range c.listeners {
		if l.TrafficDirection != corev3.TrafficDirection_OUTBOUND || l.UseOriginalDst.GetValue() ||
			l.GetInternalListener() != nil {
			continue
		}
		destination, err := c.destinationOf(l)
		if err != nil {
			return nil, err
		}
		at := l.Address.GetSocketAddress()
		way := reach{Address: Address{at.GetAddress(), at.GetPortValue()}, bound: bound(l), destination: destination}
		if key, ok := service.ParseDestination(destination); ok {
			way.key = key
		}
		ways = append(ways, way)
	}
	slices.SortStableFunc(ways, func(a, b reach) int {
		switch {
		case a.bound == b.bound:
			return 0
		case a.bound:
			return -1
		}
		return 1
	})
	return ways, nil
}

// destinationOf returns the name of the destination that a listener leads to.
func (c *Config) destinationOf(l *listenerv3.Listener) (string, error) {
	filter, err := c.lastFilter(l.FilterChains[0])
	if err != nil {
		return "", fmt.Errorf("listener %s: %w", l.Name, err)
	}
	switch f := filter.(type) {
	case *hcmv3.HttpConnectionManager:
		return f.GetRds().GetRouteConfigName(), nil
	case *tcpproxyv3.TcpProxy:
		return f.StatPrefix, nil // a route may lead to other clusters
	}
	return "", nil
}

// list formats destinations as arguments for Request.To.
func list(ways []reach) string {
	if len(ways) == 0 {
		return "nothing"
	}
	var names []string
	for _, way := range ways {
		names = append(names, fmt.Sprintf("%s:%d (at %s)", orElse(way.key.Service, "?"), way.key.Port, way.Address))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

func listDestinations(ways []reach) string {
	var names []string
	for _, way := range ways {
		names = append(names, fmt.Sprintf("%s (at %s)", way.destination, way.Address))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
