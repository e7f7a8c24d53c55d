package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/kind"
)

func newInspectServiceCommand(r *remote) *cobra.Command {
	var zone, kindName string
	command := &cobra.Command{
		Use:   "service NAME",
		Short: "Show one service: zones, allowed clients, and the routes of other zones",
		Long: `Show the services with a name, of every zone and every kind: host names and virtual IPs, the SNIs of each
port, identities, zone ingresses and egresses with their health, servers, their allowed clients, members, and the
reasons why clients cannot reach the service.

Only the zone of a service knows its servers and rules. Where it does not respond, they are listed as unknown.`,
		Example: `  weft inspect service web
  weft inspect service web --zone east
  weft inspect service web --kind meshmultizoneservice -o yaml
  weft inspect service api --kind meshexternalservice`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: r.completeName(kind.MeshServices),
	}
	o := outputFlag(command, asText, asJSON, asYAML)
	command.Flags().StringVar(&zone, "zone", "", "only the services of this zone")
	command.Flags().StringVar(&kindName, "kind", "",
		"only services of this kind: meshservice, meshmultizoneservice or meshexternalservice")
	completeFlag(command, "zone", r.completeName(kind.Zones))
	completeFlag(command, "kind",
		cobra.FixedCompletions([]string{"meshservice", "meshmultizoneservice", "meshexternalservice"},
			cobra.ShellCompDirectiveNoFileComp))
	command.RunE = func(command *cobra.Command, args []string) error {
		if args[0] == "" {
			return errors.New("name a service; `weft inspect services` lists them")
		}
		query := url.Values{"zone": {zone}}
		if kindName != "" {
			d, err := kindOf(kindName)
			if err != nil {
				return err
			}
			query.Set("type", d.Describe().Name)
		}
		path := client.Path(kind.Meshes, "", r.mesh) + "/services/" + url.PathEscape(args[0]) + "/_inspect"
		return show(r, command, path, query, o.form, printServices)
	}
	return command
}

func printServices(w io.Writer, found *rest.Services) error {
	for i := range found.Services {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := printService(w, &found.Services[i]); err != nil {
			return err
		}
	}
	return nil
}

// printService prints a service: a table for each list that is not empty.
func printService(w io.Writer, s *inspect.ServiceReport) error {
	fmt.Fprintf(w, "%s %s/%s, %s\n", s.Type, s.Mesh, s.DisplayName, serviceHome(s))
	line := func(label string, values ...string) {
		if len(values) > 0 {
			fmt.Fprintf(w, "%-12s %s\n", label, strings.Join(values, "\n             "))
		}
	}
	line("Host names:", s.Hostnames...)
	line("Virtual IPs:", s.VIPs...)
	line("External:", s.External...)
	line("Identities:", s.Identities...)
	for _, obstacle := range s.Unreachable {
		line("Other zones:", "can't reach it: "+string(obstacle))
	}
	tables := []section{portTable(s), ingressTable(s), egressTable(s), memberTable(s), conditionTable(s.Conditions)}
	if s.Backends != nil {
		tables = append(tables, serverTable(s.Backends.Servers))
	}
	for _, t := range tables {
		if err := t.print(w); err != nil {
			return err
		}
	}
	if err := printAccess(w, s.Backends); err != nil {
		return err
	}
	var missing unknownParts
	missing.add("servers and allowed clients", s.NotQueried)
	return missing.print(w)
}

func serviceHome(s *inspect.ServiceReport) string {
	switch {
	case s.Type == kind.MeshMultiZoneServices.Name:
		return fmt.Sprintf("made of %s", count(len(s.Members), "MeshService"))
	case s.Type == kind.MeshExternalServices.Name:
		return "outside the mesh"
	case s.State == "":
		return "of the zone " + s.Zone
	}
	return fmt.Sprintf("of the zone %s, %s", s.Zone, s.State)
}

// section is rows under a heading.
type section struct {
	heading []string
	rows    [][]string
}

// print writes it after an empty line; nothing if it has no rows.
func (t section) print(w io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printTable(w, t.heading, t.rows)
}

func portTable(s *inspect.ServiceReport) section {
	t := section{heading: []string{"PORT", "PROTOCOL", "ENDPOINTS", "SNI"}}
	for i := range s.Ports {
		p := &s.Ports[i]
		t.rows = append(t.rows, []string{fmt.Sprint(p.Port), string(p.Protocol), endpointsOf(s, p.Port),
			cmp.Or(strings.Join(p.SNIs, " "), "-")})
	}
	return t
}

// endpointsOf counts the endpoints of a port and its servers, "2/3".
func endpointsOf(s *inspect.ServiceReport, port uint32) string {
	if s.Backends == nil || s.Type == kind.MeshExternalServices.Name {
		return "-"
	}
	ready, total := s.Backends.Endpoints(port)
	return fmt.Sprintf("%d/%d", ready, total)
}

func ingressTable(s *inspect.ServiceReport) section {
	t := section{heading: []string{"INGRESS", "ZONE", "ADDRESS", "HEALTH"}}
	for _, in := range s.Ingresses {
		health := "healthy"
		if !in.Healthy {
			health = "not healthy"
		}
		if in.Legacy {
			health += ", a ZoneIngress"
		}
		address := in.Address
		if len(in.Resolved) > 0 {
			address += " (" + strings.Join(in.Resolved, ", ") + ")"
		}
		t.rows = append(t.rows, []string{in.Name, in.Zone, address, health})
	}
	return t
}

func egressTable(s *inspect.ServiceReport) section {
	t := section{heading: []string{"EGRESS", "ADDRESS", "HEALTH"}}
	for _, out := range s.Egresses {
		health := "ready"
		if !out.Healthy {
			health = "not ready"
		}
		if out.Legacy {
			health += ", a ZoneEgress"
		}
		t.rows = append(t.rows, []string{out.Name, out.Address, health})
	}
	return t
}

func memberTable(s *inspect.ServiceReport) section {
	t := section{heading: []string{"MEMBER", "ZONE", "STATE", "PORTS", "LEFT OUT"}}
	for _, m := range s.Members {
		ports := strings.Trim(fmt.Sprint(m.Ports), "[]")
		t.rows = append(t.rows, []string{m.Name, m.Zone, cmp.Or(m.State, "-"), cmp.Or(ports, "-"),
			cmp.Or(strings.Join(m.Excluded, "; "), "-")})
	}
	return t
}

func serverTable(servers []inspect.Server) section {
	t := section{heading: []string{"PORT", "DATAPLANE", "ADDRESS", "STATUS"}}
	for _, s := range servers {
		t.rows = append(t.rows, []string{fmt.Sprint(s.Port), s.Dataplane, s.Address, string(s.Status)})
	}
	return t
}

var conditionHeading = []string{"CONDITION", "STATUS", "REASON", "MESSAGE"}

func conditionTable(conditions []kind.Condition) section {
	t := section{heading: conditionHeading}
	for _, c := range conditions {
		t.rows = append(t.rows, []string{c.Type, c.Status, c.Reason, c.Message})
	}
	return t
}

// printAccess prints the access rules of each port. Servers with the same rules share a paragraph.
func printAccess(w io.Writer, backends *inspect.Backends) error {
	if backends == nil {
		return nil
	}
	for i := range backends.Access {
		a := &backends.Access[i]
		fmt.Fprintf(w, "\nPort %d at %s:\n", a.Port, someOf(a.Dataplanes))
		if a.Rules != nil {
			printRules(w, "denied", a.Rules.Deny)
			printRules(w, "allowed, to be denied", a.Rules.AllowWithShadowDeny)
			printRules(w, "allowed", a.Rules.Allow)
		}
		if _, err := fmt.Fprintf(w, "  %s\n", a.Default); err != nil {
			return err
		}
	}
	return nil
}

func printRules(w io.Writer, effect string, rules []inspect.AppliedRule) {
	for _, rule := range rules {
		fmt.Fprintf(w, "  %s: %s, by %s\n", effect, rule.SpiffeID.String(), rule.Origin)
	}
}
