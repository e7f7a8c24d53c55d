package redirect

import (
	"errors"
	"fmt"
	"strings"
)

// Run is one installation or its end.
type Run struct {
	// Force continues if weft's chains were edited, whose content is lost, or if another mesh redirects connections
	// too.
	Force bool
	// System is whose rules are changed.
	System System
}

// System reads and changes the rules of a machine.
type System interface {
	// Save returns the output of iptables-save, or ip6tables-save.
	Save(six bool) (string, error)
	// Restore passes text to iptables-restore --noflush, or ip6tables-restore. Each table is changed as a whole or,
	// with an error, not at all.
	Restore(six bool, text string) error
}

// Change is the input of iptables-restore, or of ip6tables-restore.
type Change struct {
	Program string
	Text    string
	family  *family
	was     rules
	wanted  rules
}

// families in the order in which they are changed.
var families = []*family{ipv4, ipv6}

// Plan returns the changes for the options, in order; none if all rules are installed. Nil options remove all
// redirection. It changes nothing.
func (r *Run) Plan(o *Options) ([]Change, error) {
	if o != nil {
		if err := o.Check(); err != nil {
			return nil, err
		}
	}
	var changes []Change
	var rejected error
	for _, f := range families {
		there, err := r.read(f)
		if err != nil {
			return nil, err
		}
		wanted := rules{}
		if o != nil && o.redirects(f) {
			wanted = o.wanted(f)
		}
		rejected = errors.Join(rejected, there.reject(f, o != nil, r.Force))
		if text := change(there.ours, wanted); text != "" {
			changes = append(changes, Change{Program: f.programs + "-restore", Text: text, family: f, was: there.ours,
				wanted: wanted})
		}
	}
	return changes, rejected
}

func (r *Run) read(f *family) (*found, error) {
	saved, err := r.System.Save(f.six)
	if err != nil {
		return nil, err
	}
	return read(saved), nil
}

// Apply makes changes that were planned just now. Where one fails, all is put back as it was.
func (r *Run) Apply(changes []Change) error {
	for i := range changes {
		err := r.apply(&changes[i])
		if err == nil {
			continue
		}
		return errors.Join(err, r.undo(changes[:i+1]))
	}
	return nil
}

func (r *Run) apply(c *Change) error {
	if err := r.System.Restore(c.family.six, c.Text); err != nil {
		return fmt.Errorf("%s: %w", c.Program, err)
	}
	there, err := r.read(c.family)
	if err != nil {
		return err
	}
	if !there.ours.equal(c.wanted) {
		return fmt.Errorf("%s: other rules are there than were given to it; does something else change them now, "+
			"such as a firewall's daemon?", c.Program)
	}
	return nil
}

// undo restores the rules before changes, the last of which has failed.
func (r *Run) undo(changes []Change) error {
	var failed error
	for i := range changes {
		c := &changes[len(changes)-1-i]
		there, err := r.read(c.family)
		if err == nil {
			if text := change(there.ours, c.was); text != "" {
				err = r.System.Restore(c.family.six, text)
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("putting back what was there for %s failed: %w; look at %s-save",
				c.family.name, err, c.family.programs))
		}
	}
	return failed
}

// Show writes changes as they are given to the programs.
func Show(changes []Change) string {
	var text strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&text, "# %s --noflush\n%s", c.Program, c.Text)
	}
	return text.String()
}
