package kind

import (
	"net/netip"
	"testing"
)

func TestLocalAddresses(t *testing.T) {
	for address, local := range map[string]bool{
		"127.0.0.1": true, "127.255.0.9": true, "0.0.0.0": true, "0.1.2.3": true, "169.254.169.254": true,
		"224.0.0.1":       true,
		"255.255.255.255": true, "241.0.0.1": true, "168.63.129.16": true, "100.100.100.200": true,
		"::1": true, "::": true, "::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "::127.0.0.1": true,
		"fe80::1": true, "fe80::1%eth0": true,
		"2001:db8::1%eth0": true, "ff02::1": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true,
		"64:ff9b:1::7f00:1":      true,
		"64:ff9b:1:7f00:0:100::": true, "2002:7f00:1::1": true, "2002:a9fe:a9fe::": true, "fd00:ec2::254": true,
		"fd20:ce::254": true,
		"10.0.0.1":     false, "192.168.1.1": false, "8.8.8.8": false, "100.64.0.1": false, "::ffff:10.0.0.1": false,
		"2001:db8::1": false,
		"fd00::1":     false, "64:ff9b::808:808": false, "2002:808:808::1": false, "127.30.1.1": false,
		"::ffff:127.30.1.1": false,
		"64:ff9b::7f1e:101": false,
	} {
		if what := LocalAddress(netip.MustParseAddr(address),
			[]netip.Prefix{netip.MustParsePrefix("127.30.0.0/16")}); (what != "") != local {
			t.Errorf("%s is %q", address, what)
		}
	}
	for address, local := range map[string]bool{
		"localhost": true, "a.localhost": true, "LOCALHOST.": true, "localhost.localdomain": true,
		"ip6-localhost": true, "127.0.0.1": true,
		"notlocalhost": false, "localhost.example.com": false, "example.com": false, "10.0.0.1": false,
	} {
		if what := LocalEndpoint(address, nil); (what != "") != local {
			t.Errorf("%s is %q", address, what)
		}
	}
}
