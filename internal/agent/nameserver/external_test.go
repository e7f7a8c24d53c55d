package nameserver

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Local addresses are excluded from every source, and no name without the suffix is resolved.
func TestNamesOutsideLeadToNoLocalAddress(t *testing.T) {
	upstream := resolver(t, func(m *dns.Msg, _ string) *dns.Msg {
		reply := new(dns.Msg).SetReply(m)
		q := m.Question[0]
		records := map[string][]string{
			"good.example. A": {"192.0.2.1"}, "mixed.example. A": {"127.0.0.1", "192.0.2.2"},
			"local.example. A":    {"127.0.0.1"},
			"metadata.example. A": {"169.254.169.254"}, "mapped.example. AAAA": {"::ffff:127.0.0.1"},
			"six.example. AAAA":  {"2001:db8::1", "::1", "fe80::1"},
			"short.corp.test. A": {"192.0.2.3"},
		}[q.Name+" "+dns.TypeToString[q.Qtype]]
		if q.Name == "alias.example." && q.Qtype == dns.TypeA {
			reply.Answer = append(reply.Answer, record("alias.example. 7 IN CNAME good.example."),
				record("good.example. 60 IN A 192.0.2.1"))
			return reply
		}
		for _, value := range records {
			reply.Answer = append(reply.Answer,
				record(fmt.Sprintf("%s 60 IN %s %s", q.Name, dns.TypeToString[q.Qtype], value)))
		}
		if len(records) == 0 {
			reply.Rcode = dns.RcodeNameError
		}
		return reply
	})
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	for file, text := range map[string]string{
		conf:  "nameserver 192.0.2.9\nsearch corp.test\n",
		hosts: "127.0.1.1 machine # itself\n192.0.2.4 Partner partner.example\n::1 machine6\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := NewExternal(ExternalConfig{
		Suffix: ".weft.invalid.", Resolvers: []netip.AddrPort{upstream}, ResolvConf: conf, Hosts: hosts,
		Log: slog.New(slog.DiscardHandler),
		Local: func(a netip.Addr) string {
			if a.Unmap().IsLoopback() || a.IsLinkLocalUnicast() {
				return "local"
			}
			return ""
		},
	})
	waitForResolvers(e.server)
	at, err := e.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- e.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name string
		of   uint16
		want string
	}{
		{"good.example", dns.TypeA, "NOERROR, 192.0.2.1"},
		{"GOOD.example", dns.TypeA, "NOERROR, 192.0.2.1"},
		{"alias.example", dns.TypeA, "NOERROR, 192.0.2.1"},
		{"mixed.example", dns.TypeA, "NOERROR, 192.0.2.2"},
		{"local.example", dns.TypeA, "NOERROR"},
		{"metadata.example", dns.TypeA, "NOERROR"},
		{"mapped.example", dns.TypeAAAA, "NOERROR"},
		{"six.example", dns.TypeAAAA, "NOERROR, 2001:db8::1"},
		{"short", dns.TypeA, "NOERROR, 192.0.2.3"},
		{"machine", dns.TypeA, "NOERROR"},
		{"machine6", dns.TypeAAAA, "NOERROR"},
		{"partner", dns.TypeA, "NOERROR, 192.0.2.4"},
		{"partner.example", dns.TypeA, "NOERROR, 192.0.2.4"},
		{"absent.example", dns.TypeA, "NXDOMAIN"},
		{"good.example", dns.TypeTXT, "REFUSED"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := told(queryOver(t, network, at, question(c.name+".weft.invalid.", c.of))); got != c.want {
				t.Errorf("%s %s over %s: %s, want %s", c.name, dns.TypeToString[c.of], network, got, c.want)
			}
		}
	}
	if got := told(queryOver(t, "udp", at, question("good.example.", dns.TypeA))); got != "REFUSED" {
		t.Errorf("a name without the suffix: %s", got)
	}
	if reply := queryOver(t, "udp", at, question("alias.example.weft.invalid.", dns.TypeA)); !strings.HasPrefix(
		reply.Answer[0].String(), "alias.example.weft.invalid.\t7\t") {
		t.Errorf("the alias holds as long as its shortest part: %s", reply.Answer[0])
	}
}
