package main

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/kind"
	"weft/resource"
)

// completionTimeout is the timeout of a request for completions. After it, nothing is completed.
const completionTimeout = time.Second

// completer returns the possible values of an argument that begins with a text.
type completer = func(command *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completeKindAndName completes a KIND and then the NAME of one.
func (r *remote) completeKindAndName(command *cobra.Command, args []string, begun string) ([]string,
	cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return beginning(kindNames(), begun), cobra.ShellCompDirectiveNoFileComp
	case 1:
		if d, err := kindOf(args[0]); err == nil {
			return r.resourceNames(command.Context(), d, begun), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeName completes one name of a kind.
func (r *remote) completeName(d resource.Descriptor) completer {
	return func(command *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return r.resourceNames(command.Context(), d, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// resourceNames requests the names that begin with a text, in the mesh of --mesh.
func (r *remote) resourceNames(ctx context.Context, d resource.Descriptor, begun string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := r.client(ctx)
	if err != nil {
		return nil
	}
	var page struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
	}
	if err := c.Get(ctx, client.Path(d, r.meshOf(d), ""), url.Values{"name": {begun}, "size": {"1000"}},
		&page); err != nil {
		return nil
	}
	var names []string
	for _, item := range page.Items {
		names = append(names, item.Name)
	}
	return beginning(names, begun)
}

// kindNames are the plurals of the kinds that users may name.
func kindNames() []string {
	var plurals []string
	for _, d := range kind.All() {
		if info := d.Describe(); !info.Hidden {
			plurals = append(plurals, info.Plural)
		}
	}
	return plurals
}

func beginning(names []string, begun string) []string {
	var kept []string
	for _, name := range names {
		if strings.HasPrefix(name, begun) {
			kept = append(kept, name)
		}
	}
	return kept
}

// completeFlag registers the completion of a flag, if the command has the flag.
func completeFlag(command *cobra.Command, flag string, complete completer) {
	_ = command.RegisterFlagCompletionFunc(flag, complete) // fails for an unknown flag, and for one with a completion
}

// addCompletionCommand adds cobra's command that writes completion scripts, with examples.
func addCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	command, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // it was added in the line before
	}
	command.Short = "Write the script that completes weft's commands in a shell"
	command.Example = "  source <(weft completion bash)"
	for _, shell := range command.Commands() {
		shell.Example = "  weft completion " + shell.Name()
	}
}
