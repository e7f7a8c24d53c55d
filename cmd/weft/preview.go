package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/kind"
	"weft/resource"
)

// printPreviews prints the changes that applying manifests would make. It checks all of them, also after an error.
func printPreviews(command *cobra.Command, c *client.Client, manifests []manifest) error {
	var faults []error
	made := map[string]bool{} // meshes that would be created
	for _, m := range manifests {
		key := m.object.Key()
		would, err := c.PreviewPut(command.Context(), m.object, m.kind)
		if made[key.Mesh] && resource.CodeOf(err) == resource.NotFound {
			fmt.Fprintf(command.OutOrStdout(), "%s would be created, and is checked once its mesh is there\n", key)
			continue
		}
		if err == nil {
			made[key.Name] = made[key.Name] || m.kind == kind.Meshes && would.Created
			err = printPreview(command, c, m, would)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func printPreview(command *cobra.Command, c *client.Client, m manifest, would client.Preview) error {
	out, key := command.OutOrStdout(), m.object.Key()
	outcome := "would not change"
	switch {
	case would.Created:
		outcome = "would be created"
	case would.Changed:
		outcome = "would be updated"
	}
	fmt.Fprintln(out, key, outcome)
	for _, warning := range would.Warnings {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
	}
	if would.Created || !would.Changed {
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
