package redirect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// lockBound is for how many seconds another program's change of the rules is waited for.
const lockBound = 5

// Programs are the iptables of a machine.
type Programs struct {
	variants map[bool]string // the variant of the programs of IPv6 (true) and IPv4, before "-save" and "-restore"
}

// variants are the possible variants, the machine's default first.
var variants = []string{"", "-nft", "-legacy"}

// FindPrograms returns the programs that work with this kernel. Those of IPv6 may be missing if IPv6 is not requested:
// then none of it can have been redirected.
func FindPrograms(six bool) (*Programs, error) {
	found := &Programs{variants: map[bool]string{}}
	for _, f := range families {
		variant, err := find(f)
		switch {
		case err == nil:
			found.variants[f.six] = variant
		case !f.six || six:
			return nil, err
		}
	}
	return found, nil
}

func find(f *family) (string, error) {
	var failed []string
	for _, variant := range variants {
		name := f.programs + variant
		_, missing := exec.LookPath(name + "-restore")
		if missing != nil {
			continue
		}
		_, err := run("", name+"-save", "-t", "nat")
		if err == nil {
			return name, nil
		}
		failed = append(failed, err.Error())
	}
	if len(failed) == 0 {
		return "",
			fmt.Errorf("%s: there is no %s-restore; install iptables (Debian and Ubuntu: apt-get install iptables; "+
				"Fedora: dnf install iptables-nft)", f.name, f.programs)
	}
	return "", fmt.Errorf("%s: %s", f.name, strings.Join(failed, "; "))
}

// Save implements System.
func (p *Programs) Save(six bool) (string, error) {
	name, ok := p.variants[six]
	if !ok {
		return "", nil
	}
	return run("", name+"-save")
}

// Restore implements System.
func (p *Programs) Restore(six bool, text string) error {
	_, err := run(text, p.variants[six]+"-restore", "--noflush", fmt.Sprintf("--wait=%d", lockBound))
	if err != nil {
		return fmt.Errorf("%w; the kernel needs xt_REDIRECT, xt_CT, xt_addrtype, xt_comment and xt_owner", err)
	}
	return nil
}

func run(input, name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// Nothing is a machine without rules, which can't be changed: for a dry run where the real rules may not be read.
type Nothing struct{}

// Save implements System.
func (Nothing) Save(bool) (string, error) { return "", nil }

// Restore implements System.
func (Nothing) Restore(bool, string) error { return errors.New("nothing is changed here") }

// HasIPv6 returns whether the network namespace of this thread has IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}
