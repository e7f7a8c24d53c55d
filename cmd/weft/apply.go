package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"weft/internal/client"
	"weft/resource"
)

func newApplyCommand(r *remote) *cobra.Command {
	var from sources
	var isDryRun, ifUnchanged bool
	var canary *string
	command := &cobra.Command{
		Use:   "apply -f FILE|DIR|URL|-",
		Short: "Create or update resources",
		Long: `Create or update the resources in YAML or JSON files, in the Universal or the Kubernetes form. A document
that is a list, or has items and no type, is a list of resources. Values of JSON may follow each other.

The control plane checks all documents before the first is written, each as if those before it were stored:
one that is rejected leaves everything as it is, and the error names every such document. A resource without a
mesh belongs to --mesh. Meshes are written first, then identities, policies, services and Dataplanes.
{{ KEY }} stands for the value of --var KEY=VALUE; one without a value is an error.

With --if-unchanged a resource is written only if it is stored as its document was read: not changed, deleted or
created since then. Each document needs the creationTime and the modificationTime that
` + "`weft get -o yaml`" + ` prints.

With --dry-run the control plane checks everything as if it were written, and returns the changes. ` +
			"`weft diff`" + ` shows what the changes do to the proxies.

With --canary the resources are policies, and apply to the proxies with the labels alone until
` + "`weft promote`" + `.`,
		Example: `  weft apply -f mesh.yaml
  weft apply -f examples/demo/mesh --dry-run
  weft apply -f web.yaml --var version=v2 --var replicas=3
  weft apply -f https://example.com/mesh.yaml
  cat web.yaml | weft apply -f -
  weft apply -f edited.yaml --if-unchanged
  weft apply -f timeout.yaml --canary version=v2
  weft apply -f timeout.yaml --note INC-7`,
		Args: filesByFlag,
		RunE: func(command *cobra.Command, _ []string) error {
			manifests, invalid := readManifests(command.Context(), &from, command.InOrStdin(), r.mesh)
			if len(manifests) == 0 {
				return invalid
			}
			if err := asCanaries(manifests, *canary); err != nil {
				return errors.Join(invalid, err)
			}
			inWriteOrder(manifests)
			c, err := r.client(command.Context())
			if err != nil {
				return errors.Join(invalid, err)
			}
			if invalid != nil {
				_, rejected := tryAll(command.Context(), c, manifests)
				if rejected == errEarlierRelease {
					return invalid
				}
				return errors.Join(invalid, reachable(rejected))
			}
			if isDryRun {
				return printPreviews(command, c, manifests)
			}
			etags := map[resource.Key]string{}
			if ifUnchanged {
				if etags, err = storedAsRead(command.Context(), c, manifests); err != nil {
					return err
				}
			}
			if len(manifests) > 1 { // the write of one is its check
				_, err := tryAll(command.Context(), c, manifests)
				if err = warnOfEarlierRelease(command, err); err != nil {
					return err
				}
			}
			for _, m := range manifests {
				if err := apply(command, c, m, etags[m.object.Key()]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	from.flags(command)
	canary = canaryFlag(command)
	command.Flags().BoolVar(&isDryRun, "dry-run", false, "show what would change, and change nothing")
	command.Flags().BoolVar(&ifUnchanged, "if-unchanged", false,
		"write a resource only if it is stored as its document was read")
	command.MarkFlagsMutuallyExclusive("dry-run", "if-unchanged")
	r.noteFlag(command)
	_ = command.MarkFlagRequired("file") // it exists
	return command
}

// times are the computed fields of a document by which two readings of a resource are compared.
type times struct {
	Created  time.Time `json:"creationTime"`
	Modified time.Time `json:"modificationTime"`
}

// storedAsRead returns the ETags of resources that are stored as their documents were read. The error names each one
// that is not.
func storedAsRead(ctx context.Context, c *client.Client, manifests []manifest) (map[resource.Key]string, error) {
	etags := map[resource.Key]string{}
	var faults []error
	for _, m := range manifests {
		key := m.object.Key()
		var read, stored times
		if yaml.Unmarshal(resource.AsYAML(m.text), &read) != nil {
			read = times{} // they are computed, so that other values are no error
		}
		etag, err := c.Read(ctx, client.Path(m.kind, key.Mesh, key.Name), nil, &stored)
		switch {
		case read.Created.IsZero() || read.Modified.IsZero():
			faults = append(
				faults,
				fmt.Errorf("%s: %s has no creationTime and modificationTime, as `weft get -o yaml` "+
					"prints them, and --if-unchanged needs both", m.at, key),
			)
		case resource.CodeOf(err) == resource.NotFound:
			faults = append(faults, fmt.Errorf("%s: %s was deleted after the document was read", m.at, key))
		case err != nil:
			return nil, err
		case !stored.Created.Equal(read.Created):
			faults = append(
				faults,
				fmt.Errorf("%s: %s was deleted after the document was read, and created again at %s",
					m.at, key, stored.Created.Format(time.RFC3339)),
			)
		case !stored.Modified.Equal(read.Modified):
			faults = append(
				faults,
				fmt.Errorf("%s: %s was changed at %s, after the document was read; read it again and "+
					"repeat the change", m.at, key, stored.Modified.Format(time.RFC3339)),
			)
		}
		etags[key] = etag
	}
	return etags, errors.Join(faults...)
}

// apply writes one resource; with an ETag only where the stored version is that one.
func apply(command *cobra.Command, c *client.Client, m manifest, etag string) error {
	result, err := c.PutIfMatch(command.Context(), m.object, m.kind, etag)
	if err != nil {
		return err
	}
	outcome := "unchanged"
	switch {
	case result.Created:
		outcome = "created"
	case result.Changed:
		outcome = "updated"
	}
	fmt.Fprintf(command.OutOrStdout(), "%s %s\n", m.object.Key(), outcome)
	for _, warning := range result.Warnings {
		fmt.Fprintln(command.ErrOrStderr(), "Warning:", warning)
	}
	return nil
}
