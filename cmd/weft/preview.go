package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/rest"
	"weft/resource"
)

// printPreviews prints the changes that applying manifests would make.
func printPreviews(command *cobra.Command, c *client.Client, manifests []manifest) error {
	would, err := tryAll(command.Context(), c, manifests)
	if err != nil {
		return err
	}
	for i, m := range manifests {
		if err := printPreview(command, c, m, &would[i]); err != nil {
			return err
		}
	}
	return nil
}

func printPreview(command *cobra.Command, c *client.Client, m manifest, would *rest.DryRunResource) error {
	out, key := command.OutOrStdout(), m.object.Key()
	outcome := "would be " + would.Outcome
	if would.Outcome == "unchanged" {
		outcome = "would not change"
	}
	fmt.Fprintln(out, key, outcome)
	for _, warning := range would.Warnings {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
	}
	if would.Outcome != "updated" {
		return nil
	}
	var stored json.RawMessage
	if err := c.Get(command.Context(), client.Path(m.kind, key.Mesh, key.Name), nil, &stored); err != nil {
		return err
	}
	before, err := comparableForm(stored, m.kind)
	if err != nil {
		return err
	}
	after, err := comparableForm(would.Resource, m.kind)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, paletteOf(out).diff(changes(before, after)))
	return err
}

// changes returns the hunks of a unified diff, without the lines that name files.
func changes(before, after []byte) string {
	text := string(diff.Diff("before", before, "after", after))
	if at := strings.Index(text, "\n@@"); at >= 0 {
		return text[at+1:]
	}
	return "  (a secret value differs)\n"
}

// comparableForm returns a resource in YAML without computed fields and secret values.
func comparableForm(document []byte, d resource.Descriptor) ([]byte, error) {
	var b bytes.Buffer
	err := printYAMLWithout(&b, document, func(field string) bool {
		return addedOnReading[field] || d.Describe().AdminOnly && field == "data"
	})
	return b.Bytes(), err
}

// addedOnReading has the fields that the API adds to a resource when it is read.
var addedOnReading = map[string]bool{"creationTime": true, "modificationTime": true, "status": true, "kri": true}
