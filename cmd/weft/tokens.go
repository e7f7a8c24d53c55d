package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/identity"
	"weft/internal/rest"
	"weft/internal/token"
	"weft/kind"
)

// signing says who signs a token: the control plane, or this program with a key that it is given.
type signing struct {
	validFor, keyFile, kid string
}

func (s *signing) flags(command *cobra.Command, why string) {
	command.Flags().StringVar(&s.validFor, "valid-for", "30d", "how long it is good, such as 24h or 30d"+why)
	command.Flags().StringVar(&s.keyFile, "signing-key-path", "", "sign here, with this private key (PEM), and ask no control plane")
	command.Flags().StringVar(&s.kid, "kid", "", "number of that key: N of the Secret ...-signing-key-N that holds it")
	command.MarkFlagsRequiredTogether("signing-key-path", "kid")
}

// validity answers how long the token is to be good.
func (s *signing) validity() (kind.Duration, error) {
	d, err := kind.ParseDuration(s.validFor)
	if err != nil || d <= 0 || d > token.Longest {
		return 0, fmt.Errorf("--valid-for %q is not a duration such as 24h or 30d of at most ten years", s.validFor)
	}
	return kind.Duration(d.Round(time.Second)), nil
}

// print writes a token: the control plane's answer to a request, or one with claims that is signed here.
func (s *signing) print(command *cobra.Command, r *remote, path string, request any, claims identity.Claims) error {
	var text string
	var err error
	if s.keyFile == "" {
		text, err = r.askToken(command, path, request)
	} else {
		text, err = s.sign(claims)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), text)
	return err
}

func (r *remote) askToken(command *cobra.Command, path string, request any) (string, error) {
	c, err := r.client()
	if err != nil {
		return "", err
	}
	var text []byte
	err = c.Post(command.Context(), path, request, &text)
	return string(text), err
}

func (s *signing) sign(claims identity.Claims) (string, error) {
	validFor, err := s.validity()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(s.keyFile)
	if err != nil {
		return "", err
	}
	key, err := identity.ParseSigningKey(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.keyFile, err)
	}
	return identity.Issue(key, s.kid, claims, time.Duration(validFor), time.Now())
}

func newDataplaneTokenCommand(r *remote) *cobra.Command {
	var req rest.DataplaneTokenRequest
	var s signing
	var tags []string
	command := &cobra.Command{
		Use:   "dataplane-token",
		Short: "Print a token with which a proxy proves itself",
		Long: `Print a token with which a proxy proves itself to the control plane.

It is good for the proxies of --mesh that agree with everything it names: without --name, --tag and
--workload for each of them. Whoever has it can run a proxy under such a name, so keep it like a password.`,
		Example: `  weft generate dataplane-token --name web-1 --valid-for 30d > web-1.token
  weft generate dataplane-token --mesh shop --tag kuma.io/service=web --valid-for 24h
  weft generate dataplane-token --name web-1 --signing-key-path key.pem --kid 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			req.Mesh = r.mesh
			if req.Tags, err = parseTags(tags); err != nil {
				return err
			}
			if req.ValidFor, err = s.validity(); err != nil {
				return err
			}
			return s.print(command, r, "/tokens/dataplane", req, &identity.DataplaneClaims{
				Name: req.Name, Mesh: req.Mesh, Tags: req.Tags, Type: identity.DataplaneType, Workload: req.Workload,
			})
		},
	}
	command.Flags().StringVar(&req.Name, "name", "", "the one Dataplane that may use it")
	command.Flags().StringVar(&req.Workload, "workload", "", "the label kuma.io/workload that the Dataplane must have")
	command.Flags().StringArrayVar(&tags, "tag", nil, "KEY=VALUE that every inbound must have; a key given again allows one more value")
	s.flags(command, "; a proxy needs it whenever it connects")
	return command
}

func parseTags(pairs []string) (map[string][]string, error) {
	tags := map[string][]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--tag %q is not KEY=VALUE", pair)
		}
		tags[key] = append(tags[key], value)
	}
	return tags, nil
}

func newUserTokenCommand(r *remote) *cobra.Command {
	var req rest.UserTokenRequest
	var s signing
	command := &cobra.Command{
		Use:   "user-token --name NAME",
		Short: "Print a token with which a user of the API proves who it is",
		Long: `Print a token with which a user of the API proves who it is. What users and groups may do is in the
settings access.static of the control plane; the group mesh-system:admin may do everything.`,
		Example: `  weft generate user-token --name ann --group ops --valid-for 30d > ann.token
  weft generate user-token --name ci --group mesh-system:admin --signing-key-path key.pem --kid 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if req.ValidFor, err = s.validity(); err != nil {
				return err
			}
			return s.print(command, r, "/tokens/user", req, &identity.UserClaims{Name: req.Name, Groups: req.Groups})
		},
	}
	command.Flags().StringVar(&req.Name, "name", "", "name of the user")
	command.Flags().StringArrayVar(&req.Groups, "group", nil, "group of the user; may be given several times")
	s.flags(command, "")
	_ = command.MarkFlagRequired("name") // it exists
	return command
}

func newZoneTokenCommand(r *remote) *cobra.Command {
	var req rest.ZoneTokenRequest
	var s signing
	command := &cobra.Command{
		Use:   "zone-token --zone ZONE",
		Short: "Print a token with which a zone proves itself",
		Example: `  weft generate zone-token --zone east --valid-for 30d > east.token
  weft generate zone-token --zone east --scope cp --signing-key-path key.pem --kid 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if req.ValidFor, err = s.validity(); err != nil {
				return err
			}
			claims := &identity.ZoneClaims{Zone: req.Zone, Scope: req.Scope}
			if len(claims.Scope) == 0 {
				claims.Scope = identity.ZoneScopes
			}
			return s.print(command, r, "/tokens/zone", req, claims)
		},
	}
	command.Flags().StringVar(&req.Zone, "zone", "", "name of the zone")
	command.Flags().StringArrayVar(&req.Scope, "scope", nil, "as what of the zone it is good: "+strings.Join(identity.ZoneScopes, ", ")+"; default: all")
	s.flags(command, "")
	_ = command.MarkFlagRequired("zone") // it exists
	return command
}
