package redirect

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"weft/internal/testnet"
)

var update = flag.Bool("update", false, "rewrite the expectations; understand each difference first")

// TestRules shows what is installed, by what is asked for.
func TestRules(t *testing.T) {
	const file = "testdata/rules.txtar"
	plain := Options{Proxy: Owner{ID: 5678}, InboundPort: 15006, OutboundPort: 15001, IPv4: true}
	named, excluding := plain, plain
	named.Proxy.Group, named.DNSPort, named.IPv6 = true, 15053, true
	named.Resolvers = []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fe80::1%eth0")}
	excluding.IPv6, excluding.DNSPort = true, 15053
	excluding.ExcludeInboundPorts = []Ports{{22, 22}, {9000, 9010}}
	excluding.ExcludeOutboundPorts = []Ports{{5432, 5432}}
	excluding.ExcludeInboundIPs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	excluding.ExcludeOutboundIPs = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"),
		netip.MustParsePrefix("fd00::/8")}
	for _, text := range []string{"tcp:22,80-90:1000", "*:53:0-999", "udp:*:5"} {
		users, err := ParseUserPorts(text)
		if err != nil {
			t.Fatal(err)
		}
		excluding.ExcludeOutboundOfUsers = append(excluding.ExcludeOutboundOfUsers, users)
	}
	got := &txtar.Archive{Comment: []byte("What iptables-restore is given on a machine that has no rules.\n")}
	for _, c := range []struct {
		name    string
		options Options
	}{{"IPv4 only", plain}, {"questions to the resolvers of resolv.conf", named},
		{"exclusions, questions to any address", excluding}} {
		changes, err := (&Run{System: Nothing{}}).Plan(&c.options)
		if err != nil {
			t.Fatal(err)
		}
		got.Files = append(got.Files, txtar.File{Name: c.name, Data: []byte(Show(changes))})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(txtar.Format(got))); diff != "" {
		t.Errorf("other rules (-want +got); if that is right, run with -update:\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	free, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", testnet.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	if err := validate(t.Context(), at, at); err == nil || !strings.Contains(err.Error(), "the port of the proxy") {
		t.Errorf("with a used port: %v", err)
	}
	free.Close()
	if err := validate(t.Context(), at, at); err != nil {
		t.Errorf("a connection that arrives: %v", err)
	}
	if err := validate(t.Context(), at, "127.0.0.1:1"); err == nil ||
		!strings.Contains(err.Error(), "connections are not redirected") {
		t.Errorf("a connection that does not arrive: %v", err)
	}
}

// kernel keeps the rules of a machine as iptables does.
type kernel struct {
	tables map[string]map[string][]string // by "six table", by chain
	calls  int
	fails  int // which call of Restore fails; 0: none
}

func newKernel() *kernel { return &kernel{tables: map[string]map[string][]string{}} }

func key(six bool, table string) string { return fmt.Sprint(six, " ", table) }

// Save implements System.
func (k *kernel) Save(six bool) (string, error) {
	var text strings.Builder
	for _, table := range []string{"nat", "raw"} {
		fmt.Fprintf(&text, "# by the kernel\n*%s\n", table)
		chains := k.tables[key(six, table)]
		for chain := range chains {
			fmt.Fprintf(&text, ":%s - [0:0]\n", chain)
		}
		for chain, rules := range chains {
			for _, rule := range rules {
				fmt.Fprintf(&text, "-A %s %s\n", chain, rule)
			}
		}
		text.WriteString("COMMIT\n")
	}
	return text.String(), nil
}

// Restore implements System. A call that fails has changed all tables but the last.
func (k *kernel) Restore(six bool, text string) error {
	k.calls++
	fails := k.calls == k.fails
	tables := strings.SplitAfter(text, "COMMIT\n")
	for i, table := range tables[:len(tables)-1] {
		if fails && i == len(tables)-2 {
			return errors.New("no such module")
		}
		if err := k.commit(six, table); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) commit(six bool, text string) error {
	name, rest, _ := strings.Cut(strings.TrimPrefix(text, "*"), "\n")
	chains := k.tables[key(six, name)]
	if chains == nil {
		chains = map[string][]string{}
		k.tables[key(six, name)] = chains
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		verb, argument, _ := strings.Cut(line, " ")
		chain, rule, _ := strings.Cut(argument, " ")
		i := slices.Index(chains[chain], rule)
		_, there := chains[chain]
		switch {
		case line == "COMMIT":
		case strings.HasPrefix(verb, ":"):
			chains[verb[1:]] = nil
		case verb == "-A":
			if to := target(rule); isOurs(to) && !hasChain(chains, to) || isOurs(chain) && !there {
				return fmt.Errorf("no chain for %q", line)
			}
			chains[chain] = append(chains[chain], rule)
		case verb == "-D" && i >= 0:
			chains[chain] = slices.Delete(slices.Clone(chains[chain]), i, i+1)
		case verb == "-F" && there:
			chains[chain] = nil
		case verb == "-X" && there && len(chains[chain]) == 0 && !led(chains, chain):
			delete(chains, chain)
		default:
			return fmt.Errorf("can't do %q", line)
		}
	}
	return nil
}

func hasChain(chains map[string][]string, chain string) bool {
	_, there := chains[chain]
	return there
}

// led says whether a rule leads to a chain.
func led(chains map[string][]string, to string) bool {
	for _, rules := range chains {
		if slices.ContainsFunc(rules, func(rule string) bool { return target(rule) == to }) {
			return true
		}
	}
	return false
}

// rules are all that there are, in lines that can be compared.
func (k *kernel) rules() string {
	var lines []string
	for table, chains := range k.tables {
		for chain, rules := range chains {
			if len(rules) > 0 || isOurs(chain) {
				lines = append(lines, fmt.Sprintf("%s %s: %s", table, chain, strings.Join(rules, "; ")))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// drawOptions are any that are good.
func drawOptions(t *rapid.T) *Options {
	o := &Options{
		Proxy:        Owner{ID: rapid.Uint32Max(3).Draw(t, "owner"), Group: rapid.Bool().Draw(t, "group")},
		InboundPort:  15006,
		OutboundPort: 15001,
		DNSPort:      rapid.SampledFrom([]uint16{0, 15053}).Draw(t, "DNS"),
		IPv4:         true,
		IPv6:         rapid.Bool().Draw(t, "IPv6"),
	}
	if rapid.Bool().Draw(t, "excludes") {
		o.ExcludeOutboundIPs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	return o
}

func TestWhateverIsInstalledGoesAndFailuresChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKernel()
		for _, six := range []bool{false, true} {
			k.tables[key(six, "nat")] = map[string][]string{"OUTPUT": {"-j DOCKER"}, "DOCKER": {"-p tcp -j RETURN"}}
		}
		before := k.rules()
		run := &Run{System: k}
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			was := k.rules()
			var o *Options
			if rapid.IntRange(0, 3).Draw(t, "installs") > 0 {
				o = drawOptions(t)
			}
			changes, err := run.Plan(o)
			if err != nil {
				t.Fatal(err)
			}
			k.calls, k.fails = 0, rapid.IntRange(0, 3).Draw(t, "fails")
			failed := run.Apply(changes)
			if k.fails == 0 || k.calls < k.fails {
				if failed != nil {
					t.Fatal(failed)
				}
				if again, err := run.Plan(o); err != nil || len(again) != 0 {
					t.Fatalf("the second time there is still to do (%v):\n%s", err, Show(again))
				}
			} else if failed == nil || k.rules() != was {
				t.Fatalf("after a failure (%v) there is\n%s\nwant what was there:\n%s", failed, k.rules(), was)
			}
		}
		k.fails = 0
		changes, err := run.Plan(nil)
		if err == nil {
			err = run.Apply(changes)
		}
		if err != nil || k.rules() != before {
			t.Fatalf("it leaves (%v)\n%s\nwant\n%s", err, k.rules(), before)
		}
	})
}

func TestWhatCannotBeUndoneIsRejected(t *testing.T) {
	options := &Options{InboundPort: 15006, OutboundPort: 15001, IPv4: true}
	for _, c := range []struct {
		name, chain, rule string
		installs, forces  bool // whether it is rejected on the way there, and in spite of --force
		uninstalls        bool // and on the way back
		want              string
	}{
		{"a rule that is added to a chain", outboundChain, "-j RETURN", true, false, true,
			"nat WEFT_OUTBOUND: not as weft-dp made it"},
		{"a rule of others that leads to one", "FORWARD", "-p tcp -j " + inboundChain, true, true, true,
			"iptables -t nat -A FORWARD -p tcp -j WEFT_INBOUND"},
		{"one that goes there", "FORWARD", "-g " + inboundChain, true, true, true, "-g WEFT_INBOUND"},
		{"a jump of ours that was changed", "OUTPUT", "-o eth0 -p tcp -m comment --comment weft-dp -j WEFT_OUTBOUND",
			true, true, true, "-o eth0"},
		{"another mesh", "KUMA_MESH_OUTBOUND", "-j RETURN", true, false, false, "nat KUMA_MESH_OUTBOUND: another mesh"},
		{"a comment that speaks of a chain", "OUTPUT", `-m comment --comment "before -j WEFT_DNS" -j ACCEPT`, false,
			false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKernel()
			run := &Run{System: k}
			changes, err := run.Plan(options)
			if err == nil {
				err = run.Apply(changes)
			}
			if err != nil {
				t.Fatal(err)
			}
			chains := k.tables[key(false, "nat")]
			chains[c.chain] = append(chains[c.chain], c.rule)
			other := *options
			other.InboundPort = 16006
			for _, attempt := range []struct {
				what     string
				run      *Run
				options  *Options
				rejected bool
			}{
				{"install", run, &other, c.installs},
				{"uninstall", run, nil, c.uninstalls},
				{"install --force", &Run{System: k, Force: true}, &other, c.forces},
				{"uninstall --force", &Run{System: k, Force: true}, nil, c.forces},
			} {
				_, err := attempt.run.Plan(attempt.options)
				if attempt.rejected != (err != nil) || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s is rejected with %v, want %q (%v)", attempt.what, err, c.want, attempt.rejected)
				}
			}
		})
	}
}

func TestWhatIsWrittenOnTheCommandLine(t *testing.T) {
	for text, want := range map[string]string{
		"22": "{22 22}", "8000-8010": "{8000 8010}",
		"0": "is no port", "70000": "is no port", "10-9": "is no port", "a": "is no port", "": "is no port",
		"1-2-3": "is no port",
	} {
		ports, err := ParsePorts(text)
		if got := fmt.Sprint(ports, err); !strings.Contains(got, want) {
			t.Errorf("the ports %q are read as %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1/32", "10.1.2.3/8": "10.0.0.0/8", "fd00::1": "fd00::1/128",
		"fe80::1%eth0": "is no address", "example.com": "is no address", "": "is no address",
	} {
		prefix, err := ParsePrefix(text)
		if got := fmt.Sprint(prefix, err); !strings.Contains(got, want) {
			t.Errorf("the address %q is read as %s, want %s", text, got, want)
		}
	}
	for want, o := range map[string]Options{
		"neither IPv4 nor IPv6":                   {InboundPort: 1, OutboundPort: 2},
		"--redirect-inbound-port is 0":            {OutboundPort: 2, IPv4: true},
		"--redirect-outbound-port is 0":           {InboundPort: 2, IPv4: true},
		"--redirect-outbound-port are both 15006": {InboundPort: 15006, OutboundPort: 15006, IPv4: true},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error is %v, want %q", o, err, want)
		}
	}
}
