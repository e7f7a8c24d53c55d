package redirect

import (
	"fmt"
	"slices"
	"strings"
)

// found is the parsed output of iptables-save for one family.
type found struct {
	ours     rules
	edited   []string // weft's chains that were edited, "nat WEFT_DNS"
	external []string // rules of others that lead into our chains, "nat -A OUTPUT -j WEFT_DNS"
	others   []string // chains by which another mesh redirects, "nat KUMA_MESH_OUTBOUND"
}

// otherMeshes are the prefixes of the chains of other meshes.
var otherMeshes = []string{"KUMA_MESH_", "ISTIO_", "PROXY_INIT_", "CONSUL_PROXY_"}

// ourJumps are the jumps that we ever make.
var ourJumps = func() []string {
	all := &Options{DNSPort: 1}
	var jumps []string
	for name, t := range all.wanted(ipv4) {
		for _, jump := range t.jumps {
			jumps = append(jumps, name+" "+jump)
		}
	}
	return jumps
}()

// read parses the output of iptables-save.
func read(saved string) *found {
	f := &found{ours: rules{}}
	name := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			name = line[1:]
		case strings.HasPrefix(line, ":"):
			f.chain(name, strings.Fields(line[1:])[0])
		case strings.HasPrefix(line, "-A "):
			f.rule(name, line[len("-A "):])
		}
	}
	for name, t := range f.ours {
		for chain, rules := range t.chains {
			if !sealed(rules) {
				f.edited = append(f.edited, name+" "+chain)
			}
		}
	}
	slices.Sort(f.edited)
	return f
}

func isOurs(chain string) bool {
	return slices.Contains([]string{inboundChain, outboundChain, dnsChain, trackingChain}, chain)
}

func (f *found) chain(name, chain string) {
	if isOurs(chain) {
		f.ours.table(name).chains[chain] = []string{}
	}
	for _, other := range otherMeshes {
		if strings.HasPrefix(chain, other) {
			f.others = append(f.others, name+" "+chain)
		}
	}
}

func (f *found) rule(name, rule string) {
	chain, rest, _ := strings.Cut(rule, " ")
	switch {
	case isOurs(chain):
		f.ours.add(name, chain, rest)
	case slices.Contains(ourJumps, name+" "+rule):
		t := f.ours.table(name)
		t.jumps = append(t.jumps, rule)
	case isOurs(target(rest)):
		f.external = append(f.external, fmt.Sprintf("%s -A %s", name, rule))
	}
}

// target is the chain of a rule's last -j or -g. Text in quotes, such as a comment, is ignored.
func target(rule string) string {
	words := strings.Fields(rule)
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// reject returns why nothing may be changed. A rule of another program that jumps to one of weft's chains can't be
// forced: the kernel keeps the chain.
func (f *found) reject(family *family, installing, force bool) error {
	var why []string
	if len(f.external) > 0 {
		why = append(why,
			fmt.Sprintf("a rule that weft-dp did not make leads into its chains, delete it first: %s -t %s",
				family.programs, strings.Join(f.external, "; ")))
	}
	if len(f.edited) > 0 && !force {
		why = append(why, fmt.Sprintf("%s: not as weft-dp made it; put it back, or give --force to lose what is in it",
			strings.Join(f.edited, ", ")))
	}
	if len(f.others) > 0 && installing && !force {
		why = append(why,
			fmt.Sprintf(
				"%s: another mesh redirects connections here; take its rules away first, or give --force to have both",
				strings.Join(f.others, ", ")))
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", family.name, strings.Join(why, "; "))
}
