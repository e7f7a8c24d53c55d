// Package subcommand checks the commands of a command line before they run.
package subcommand

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Check returns an error where args name a group of commands and a word that is none of them. cobra would print the
// help of the group to standard output and return no error, and a pipe to kubectl would succeed.
func Check(root *cobra.Command, args []string) error {
	group, rest, err := root.Find(args)
	if err != nil || group == root || group.Runnable() || !group.HasSubCommands() {
		return nil // cobra's own errors name the word
	}
	if err := group.ParseFlags(rest); err != nil || group.Flags().NArg() == 0 {
		return nil
	}
	word := group.Flags().Arg(0)
	group.SuggestionsMinimumDistance = 2 // cobra's own, where it checks the word after the root
	hint := ""
	if similar := group.SuggestionsFor(word); len(similar) > 0 {
		hint = fmt.Sprintf(" (is it %s?)", strings.Join(similar, " or "))
	}
	return fmt.Errorf("unknown command %q for %q%s", word, group.CommandPath(), hint)
}
