package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

func newExportCommand(r *remote) *cobra.Command {
	var withSecrets bool
	command := &cobra.Command{
		Use:   "export",
		Short: "Print all resources as YAML that apply takes",
		Long: `Print all resources as YAML that apply takes, in the order in which it writes them: of all meshes, or of
--mesh. What a control plane makes itself is left out: generated services, the MeshTrusts of MeshIdentities,
statuses, and the labels and fields that it sets.

Secrets are there with --with-secrets only. With them, tokens and certificates of this control plane are valid at
one that takes the export; keep it like a password. Where the CA of a builtin backend of mtls is not made yet, the
command fails and prints nothing: an export without it would have another CA made.`,
		Example: `  weft export > mesh.yaml
  weft export --mesh shop
  (umask 077 && weft export --with-secrets > everything.yaml)`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := r.client(command.Context())
			if err != nil {
				return err
			}
			mesh := ""
			if command.Flags().Changed("mesh") {
				mesh = r.mesh
			}
			objects, err := userResources(command.Context(), c, mesh, withSecrets)
			if err != nil {
				return err
			}
			if withSecrets {
				if err := checkExportedCAs(objects); err != nil {
					return err
				}
			}
			return printExport(command.OutOrStdout(), objects)
		},
	}
	command.Flags().BoolVar(&withSecrets, "with-secrets", false, "Secrets and GlobalSecrets too, in plain sight")
	return command
}

// userResources returns the resources that users wrote, in the order of writing; of one mesh, or of all and of global
// scope.
func userResources(ctx context.Context, c *client.Client, mesh string, withSecrets bool) ([]resource.Any, error) {
	kinds := kind.All()
	slices.SortStableFunc(kinds, func(a, b resource.Descriptor) int { return writePlace(a) - writePlace(b) })
	var objects []resource.Any
	for _, d := range kinds {
		info := d.Describe()
		ofMesh := info.Scope == resource.Mesh || d == kind.Meshes
		if info.Hidden || info.ReadOnly || info.AdminOnly && !withSecrets || mesh != "" && !ofMesh {
			continue
		}
		items, err := c.List(ctx, client.Path(d, mesh, ""), nil)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			o, own, err := userWritten(item)
			if err != nil {
				return nil, err
			}
			if own && (d != kind.Meshes || mesh == "" || o.Key().Name == mesh) {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// checkExportedCAs returns an error if an export lacks the CA of a builtin backend, since another CA would be
// generated.
func checkExportedCAs(objects []resource.Any) error {
	has := map[resource.Key]bool{}
	for _, o := range objects {
		has[o.Key()] = true
	}
	for _, o := range objects {
		mesh, ok := o.(*resource.Object[kind.Mesh])
		if !ok || mesh.Spec.MTLS == nil {
			continue
		}
		for _, b := range mesh.Spec.MTLS.Backends {
			certificate, key := pki.BuiltinSecrets(mesh.Name, b.Name)
			if b.Type != kind.BuiltinBackend || has[kind.Secrets.Key(mesh.Name, certificate)] &&
				has[kind.Secrets.Key(mesh.Name, key)] {
				continue
			}
			return fmt.Errorf("%s has no CA yet for its backend %q, so that the export would lack it; try again once "+
				"`weft get mesh %s -o yaml` shows the condition Ready", mesh.Key(), b.Name, mesh.Name)
		}
	}
	return nil
}

// setByControlPlane are the labels that every write gets.
var setByControlPlane = []string{kind.ZoneLabel, kind.OriginLabel, kind.EnvLabel, kind.DisplayName}

// userWritten returns a resource without computed fields; false if the control plane generated it.
func userWritten(item json.RawMessage) (o resource.Any, own bool, err error) {
	o, err = resource.Parse(item, kind.ByName)
	if err != nil {
		return nil, false, fmt.Errorf("the control plane's answer is none that this release reads: %w", err)
	}
	var made struct {
		Status kind.MeshTrustStatus `json:"status"`
	}
	if err := json.Unmarshal(item, &made); err != nil {
		return nil, false, err
	}
	labels := o.Envelope().Labels
	if labels[kind.ManagedBy] == kind.GeneratedBy || made.Status.Origin != nil {
		return o, false, nil
	}
	for _, name := range setByControlPlane {
		delete(labels, name)
	}
	switch spec := resource.SpecOf(o).(type) {
	case *kind.MeshService:
		spec.State, spec.Identities, spec.ZoneIngress = "", nil, nil
		removeSNIs(spec.Ports)
	case *kind.MeshMultiZoneService:
		removeSNIs(spec.Ports)
	case *kind.ZoneIngress:
		spec.Zone = ""
	case *kind.ZoneEgress:
		spec.Zone = ""
	case *kind.Dataplane:
		for i := range spec.Networking.Inbound {
			delete(spec.Networking.Inbound[i].Tags, kind.ZoneLabel)
			delete(spec.Networking.Inbound[i].Tags, environmentTag)
		}
	}
	return o, true, nil
}

// removeSNIs removes the SNIs, so that the importing zone generates its own.
func removeSNIs(ports []kind.ServicePort) {
	for i := range ports {
		ports[i].SNIs = nil
	}
}

// environmentTag is added to inbounds together with the zone's tag.
const environmentTag = "kuma.io/environment"

func printExport(w io.Writer, objects []resource.Any) error {
	for i, o := range objects {
		document, err := resource.MarshalJSON(o, nil, kind.ByName(o.Key().Kind), resource.Universal)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if err := printYAMLWithout(w, document, func(field string) bool { return addedOnReading[field] }); err != nil {
			return err
		}
	}
	return nil
}
