package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/pki"
	"weft/internal/rest"
	"weft/internal/token"
	"weft/kind"
	"weft/resource"
)

// signing selects the signer of a token: the control plane, or this program with a given key.
type signing struct {
	validFor, keyFile, kid string
}

func (s *signing) flags(command *cobra.Command, r *remote, why string) {
	command.Flags().StringVar(&s.validFor, "valid-for", "30d", "how long it is valid, such as 24h or 30d"+why)
	command.Flags().StringVar(&s.keyFile, "signing-key-path", "",
		"sign here, with this private key (PEM), and ask no control plane")
	command.Flags().StringVar(&s.kid, "kid", "",
		"id of that key: what follows in the name of its Secret, a number in ...-signing-key-2")
	command.MarkFlagsRequiredTogether("signing-key-path", "kid")
	r.noteFlag(command)
	command.MarkFlagsMutuallyExclusive("signing-key-path", "note")
}

// validity returns the lifetime of the token.
func (s *signing) validity() (kind.Duration, error) {
	d, err := resource.ParseDuration(s.validFor)
	if err != nil || d <= 0 || d > token.MaxValidity {
		return 0, fmt.Errorf("--valid-for %q is not a duration such as 24h or 30d of at most ten years", s.validFor)
	}
	return kind.Duration(d.Round(time.Second)), nil
}

// print writes a token: requested from the control plane, or signed here with the given claims.
func (s *signing) print(command *cobra.Command, r *remote, path string, request any, claims pki.Claims) error {
	var text string
	var err error
	if s.keyFile == "" {
		text, err = r.requestToken(command, path, request)
	} else {
		text, err = s.sign(claims)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), text)
	return err
}

func (r *remote) requestToken(command *cobra.Command, path string, request any) (string, error) {
	c, err := r.client(command.Context())
	if err != nil {
		return "", err
	}
	var text []byte
	err = c.Post(command.Context(), path, request, &text)
	return string(text), err
}

func (s *signing) sign(claims pki.Claims) (string, error) {
	validFor, err := s.validity()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(s.keyFile)
	if err != nil {
		return "", err
	}
	key, err := pki.ParseSigningKey(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.keyFile, err)
	}
	return pki.Issue(key, s.kid, claims, time.Duration(validFor), time.Now())
}

// dataplaneToken has the claims of a dataplane token, from flags.
type dataplaneToken struct {
	file           string // of a Dataplane
	name, workload string
	tags, labels   []string
	inboundTags    []string
	addresses      []string
	roles          []string
}

func newDataplaneTokenCommand(r *remote) *cobra.Command {
	var want dataplaneToken
	var s signing
	command := &cobra.Command{
		Use:   "dataplane-token",
		Short: "Print a token that authenticates a proxy",
		Long: `Print a token that authenticates a proxy to the control plane.

It is valid for the proxies of --mesh that agree with everything it names, and it vouches for what it names and for
nothing else. A proxy gets a SPIFFE ID only where its token, or an operator who wrote its Dataplane through the API,
vouches for what the ID is made of: the workload, a label, a service, or the name of the Dataplane. An inbound is a
member of a service only where one of them vouches for the tags and labels by which the service selects it. Its address
is vouched for by the connection of its agent, by the token, or by an operator. A proxy registers a zone egress or a
zone ingress only with a token of that --proxy-type.

With --dataplane-file the token vouches for a Dataplane as it is in that file: its name, its workload and other labels,
the tags and addresses of its inbounds, and its zone proxy sections. The holder of a token can run such a proxy, so keep it like a password.`,
		Example: `  weft generate dataplane-token --dataplane-file web-1.yaml > web-1.token
  weft generate dataplane-token --name web-1 --workload web --tag kuma.io/service=web --valid-for 30d > web-1.token
  weft generate dataplane-token --mesh shop --workload web --tag kuma.io/service=web    # for each instance of web
  weft generate dataplane-token --name egress-1 --proxy-type egress > egress-1.token
  weft generate dataplane-token --name web-1 --signing-key-path key.pem --kid 1`,
		Args: filesByFlag,
		RunE: func(command *cobra.Command, _ []string) error {
			claims, err := want.claims(r.mesh, command.Flags().Changed("mesh"))
			if err != nil {
				return err
			}
			validFor, err := s.validity()
			if err != nil {
				return err
			}
			return s.print(command, r, "/tokens/dataplane", rest.DataplaneTokenRequest{
				Name: claims.Name, Mesh: claims.Mesh, Tags: claims.Tags, Labels: claims.Labels, Type: claims.Type,
				DataplaneLabels: claims.DataplaneLabels, InboundTags: claims.InboundTags,
				Addresses: claims.Addresses, Workload: claims.Workload, ValidFor: validFor,
			}, claims)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&want.file, "dataplane-file", "f", "",
		"YAML or JSON of the Dataplane that the token is to vouch for; other flags add to it")
	flags.StringVar(&want.name, "name", "", "the one Dataplane that may use it")
	flags.StringVar(&want.workload, "workload", "", "the label kuma.io/workload that the Dataplane must have")
	flags.StringArrayVar(&want.tags, "tag", nil,
		"KEY=VALUE that every inbound must have; a key given again allows one more value")
	flags.StringArrayVar(&want.labels, "label", nil,
		"KEY=VALUE that the Dataplane must have as a label, where a MeshIdentity selects by it or names it; may be "+
			"given several times")
	flags.StringArrayVar(&want.inboundTags, "inbound-tag", nil,
		"KEY=VALUE that an inbound may have; may be given several times")
	flags.StringArrayVar(&want.addresses, "address", nil,
		"IP address, network or host name that an inbound may have, where its agent connects from another one; may be "+
			"given several times")
	flags.StringSliceVar(&want.roles, "proxy-type", nil,
		"dataplane, egress or ingress, or several of them; default: dataplane")
	s.flags(command, r, "; a proxy needs it whenever it connects")
	completeFlag(command, "proxy-type", cobra.FixedCompletions(pki.Roles, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// claims returns the claims of the token. A given mesh must be that of the file.
func (t *dataplaneToken) claims(mesh string, given bool) (*pki.DataplaneClaims, error) {
	claims := &pki.DataplaneClaims{Mesh: mesh}
	if t.file != "" {
		var err error
		if claims, err = claimsOfFile(t.file, mesh, given); err != nil {
			return nil, err
		}
	}
	if err := addTags(&claims.Tags, "tag", t.tags); err != nil {
		return nil, err
	}
	if err := addTags(&claims.InboundTags, "inbound-tag", t.inboundTags); err != nil {
		return nil, err
	}
	for _, address := range t.addresses {
		if problem := pki.AddressProblem(address); problem != "" {
			return nil, fmt.Errorf("--address %q %s", address, problem)
		}
		claims.Addresses = append(claims.Addresses, address)
	}
	labels, err := parsePairs("label", t.labels)
	if err != nil {
		return nil, err
	}
	for label, values := range labels {
		switch {
		case label == kind.WorkloadLabel:
			return nil, fmt.Errorf("--label %s is what --workload is for", label)
		case len(values) > 1:
			return nil, fmt.Errorf("--label %s is given with several values; a Dataplane has one", label)
		case claims.Labels == nil:
			claims.Labels = map[string]string{}
		}
		claims.Labels[label] = values[0]
	}
	claims.Name, claims.Workload = cmp.Or(t.name, claims.Name), cmp.Or(t.workload, claims.Workload)
	if len(t.roles) > 0 || claims.Type == "" {
		if claims.Type, err = pki.TypeOf(t.roles); err != nil {
			return nil, fmt.Errorf("--proxy-type %w", err)
		}
	}
	return claims, nil
}

// addTags adds the values KEY=VALUE of a flag to claimed tags.
func addTags(to *map[string][]string, flag string, pairs []string) error {
	tags, err := parsePairs(flag, pairs)
	for tag, values := range tags {
		if *to == nil {
			*to = map[string][]string{}
		}
		(*to)[tag] = append((*to)[tag], values...)
	}
	return err
}

// claimsOfFile returns the claims that vouch for the Dataplane in a file. A given mesh must agree with the Dataplane's.
func claimsOfFile(file, mesh string, given bool) (*pki.DataplaneClaims, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := resource.Parse(text, kind.ByName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	dataplane, ok := parsed.(*resource.Object[kind.Dataplane])
	switch {
	case !ok:
		return nil,
			fmt.Errorf("%s: %s is no Dataplane; a ZoneIngress or ZoneEgress needs a token of its zone: weft "+
				"generate zone-token", file, parsed.Key())
	case dataplane.Mesh == "":
		dataplane.Mesh = mesh
	case given && dataplane.Mesh != mesh:
		return nil, fmt.Errorf("%s: %s is not of the mesh %q; leave --mesh out", file, dataplane.Key(), mesh)
	}
	return pki.TokenFor(dataplane), nil
}

// parsePairs parses the values KEY=VALUE of a flag.
func parsePairs(flag string, pairs []string) (map[string][]string, error) {
	values := map[string][]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--%s %q is not KEY=VALUE", flag, pair)
		}
		values[key] = append(values[key], value)
	}
	return values, nil
}

func newUserTokenCommand(r *remote) *cobra.Command {
	var req rest.UserTokenRequest
	var s signing
	command := &cobra.Command{
		Use:   "user-token --name NAME",
		Short: "Print a token that authenticates a user of the API",
		Long: `Print a token that authenticates a user of the API. What users and groups may do is in the
settings access.static of the control plane; the group mesh-system:admin may do everything.`,
		Example: `  weft generate user-token --name ann --group ops --valid-for 30d > ann.token
  weft generate user-token --name ci --group mesh-system:admin --signing-key-path key.pem --kid 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if req.ValidFor, err = s.validity(); err != nil {
				return err
			}
			return s.print(command, r, "/tokens/user", req, &pki.UserClaims{Name: req.Name, Groups: req.Groups})
		},
	}
	command.Flags().StringVar(&req.Name, "name", "", "name of the user")
	command.Flags().StringArrayVar(&req.Groups, "group", nil, "group of the user; may be given several times")
	s.flags(command, r, "")
	_ = command.MarkFlagRequired("name") // it exists
	return command
}

func newZoneTokenCommand(r *remote) *cobra.Command {
	var req rest.ZoneTokenRequest
	var s signing
	command := &cobra.Command{
		Use:   "zone-token --zone ZONE",
		Short: "Print a token that authenticates a zone",
		Example: `  weft generate zone-token --zone east --valid-for 30d > east.token
  weft generate zone-token --zone east --scope cp --signing-key-path key.pem --kid 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if req.ValidFor, err = s.validity(); err != nil {
				return err
			}
			claims := &pki.ZoneClaims{Zone: req.Zone, Scope: req.Scope}
			if len(claims.Scope) == 0 {
				claims.Scope = pki.ZoneScopes
			}
			return s.print(command, r, "/tokens/zone", req, claims)
		},
	}
	command.Flags().StringVar(&req.Zone, "zone", "", "name of the zone")
	command.Flags().StringArrayVar(&req.Scope, "scope", nil,
		"roles of the zone that it is valid for: "+strings.Join(pki.ZoneScopes, ", ")+"; default: all")
	s.flags(command, r, "")
	_ = command.MarkFlagRequired("zone") // it exists
	return command
}
