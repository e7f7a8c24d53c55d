package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/check"
	"weft/internal/client"
	"weft/internal/dpserver"
	"weft/internal/inspect"
	"weft/internal/rest"
	"weft/kind"
	"weft/resource"
)

func newDescribeCommand(r *remote) *cobra.Command {
	command := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one resource with its status and problems",
		Example: `  weft describe meshservice web
  weft describe dataplane web-1 --mesh shop
  weft describe dataplane web-1 --zone east`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: r.completeKindAndName,
	}
	zone := r.zoneFlag(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		d, err := kindOf(args[0])
		if err != nil {
			return err
		}
		if args[1] == "" {
			return errNoName
		}
		c, err := r.client(command.Context())
		if err != nil {
			return err
		}
		key := resource.Key{Kind: d.Describe().Name, Mesh: r.meshOf(d), Name: args[1]}
		return (&description{Command: command, api: c, kind: d, key: key, zone: *zone,
			out: command.OutOrStdout()}).print()
	}
	return command
}

// description is the description of one resource.
type description struct {
	*cobra.Command
	api  *client.Client
	kind resource.Descriptor
	key  resource.Key // with the name of the resource here once it is read
	zone string       // of the resource; empty: any
	out  io.Writer
	// hasStatus states that the control plane has a status of the resource.
	hasStatus bool
	// unknown are the parts that a zone or a replica has not responded for.
	unknown unknownParts
}

func (d *description) path() string { return client.Path(d.kind, d.key.Mesh, d.key.Name) }

func (d *description) get(path string, into any) error {
	return d.api.Get(d.Context(), path, zoneQuery(d.zone), into)
}

// print writes the resource, the data of its kind, the findings about it, and the names of the missing parts.
func (d *description) print() error {
	if err := d.resource(); err != nil {
		return err
	}
	type part struct {
		what  string
		print func() error
	}
	var parts []part
	if slices.Contains(servicesByZone, d.kind) && !d.hasStatus {
		parts = append(parts, part{"status", d.zoneStatuses})
	}
	switch d.kind {
	case kind.MeshServices:
		parts = append(parts, part{"backends and callers", d.backing})
	case kind.Dataplanes:
		parts = append(parts, part{"connection and acks", d.proxy}, part{"identity, policies and facts", d.policies})
	}
	for _, part := range append(parts, part{"findings", d.findings}) {
		if err := d.unknown.addError(part.what, part.print()); err != nil {
			return err
		}
	}
	return d.unknown.print(d.out)
}

// addedToSpec are the fields of a document that are not part of the spec.
var addedToSpec = []string{"type", "mesh", "name", "labels", "creationTime", "modificationTime", "status", "kri"}

func (d *description) resource() error {
	var document json.RawMessage
	if err := d.get(d.path(), &document); err != nil {
		return err
	}
	var head struct {
		Name     string                     `json:"name"`
		Labels   map[string]string          `json:"labels"`
		Created  time.Time                  `json:"creationTime"`
		Modified time.Time                  `json:"modificationTime"`
		Status   map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return err
	}
	d.key.Name, d.zone, d.hasStatus = head.Name, "", head.Status != nil
	fmt.Fprintf(d.out, "%s\n\n", d.key)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(head.Labels)) {
		labels = append(labels, name+"="+head.Labels[name])
	}
	fmt.Fprintf(d.out, "Labels:    %s\n", cmp.Or(strings.Join(labels, "\n           "), "none"))
	fmt.Fprintf(d.out, "Created:   %s\nModified:  %s\n", timeAndAge(head.Created), timeAndAge(head.Modified))
	leaveOut := func(field string) bool { return slices.Contains(addedToSpec, field) }
	if d.kind.Describe().AdminOnly {
		leaveOut = func(string) bool { return true } // `get` prints the values
	}
	if err := d.fields(document, leaveOut); err != nil {
		return err
	}
	return d.status(head.Status)
}

// fields writes the fields of a document as YAML, without those that leaveOut selects.
func (d *description) fields(document []byte, leaveOut func(string) bool) error {
	var b bytes.Buffer
	if err := printYAMLWithout(&b, document, leaveOut); err != nil {
		return err
	}
	if text := b.String(); strings.TrimSpace(text) != "{}" {
		fmt.Fprintf(d.out, "\n%s", text)
	}
	return nil
}

// status writes the fields of a status, and its conditions as a table.
func (d *description) status(status map[string]json.RawMessage) error {
	var conditions []kind.Condition
	if raw, ok := status["conditions"]; ok {
		if err := json.Unmarshal(raw, &conditions); err != nil {
			return err
		}
		delete(status, "conditions")
	}
	if len(status) > 0 {
		document, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return err
		}
		if err := d.fields(document, func(string) bool { return false }); err != nil {
			return err
		}
	}
	return conditionTable(conditions).print(d.out)
}

func (d *description) backing() error {
	var backing inspect.Backing
	if err := d.get(d.path()+"/_backing", &backing); err != nil {
		return err
	}
	servers := serverTable(backing.Servers)
	if err := servers.print(d.out); err != nil {
		return err
	}
	if len(servers.rows) == 0 {
		fmt.Fprintln(d.out, "\nIt has no backends.")
	}
	callers := cmp.Or(someOf(backing.Callers), "none")
	if backing.Transparent > 0 {
		callers += fmt.Sprintf("; %s may, at its virtual IP", count(backing.Transparent, "Dataplane"))
	}
	_, err := fmt.Fprintf(d.out, "\nOutbounds for it: %s\n", callers)
	return err
}

func (d *description) proxy() error {
	var o rest.Overview
	if err := d.get(d.path()+"/_overview", &o); err != nil {
		return err
	}
	var sync dpserver.Live
	if err := d.unknown.addError("acks", d.get(d.path()+"/_sync", &sync)); err != nil {
		return err
	}
	d.unknown.add("acks", sync.NotQueried)
	d.unknown.addStates("state, certificate and NACKs", []*inspect.Unknown{o.Unknown}, time.Now())
	return section{overviewHeading, [][]string{overviewRow(&o, sync, time.Now())}}.print(d.out)
}

// policies writes the policies that apply to the proxy.
func (d *description) policies() error {
	var applied inspect.Applied
	if err := d.get(d.path()+"/_inspect", &applied); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\nIdentity: %s (%s)\n", cmp.Or(applied.Identity.SpiffeIDs.String(), "none"),
		applied.Identity.Reason)
	if socket := applied.Identity.SpireSocket; socket != "" {
		fmt.Fprintf(d.out, "Certificate: of the SPIRE agent at %s\n", socket)
	}
	var rows [][]string
	for _, in := range applied.Inbounds {
		rows = append(rows, []string{in.Section, fmt.Sprintf("%s:%d", in.Address, in.Port),
			cmp.Or(strings.Join(in.Policies, ", "), "no policy"), in.Default})
	}
	if err := (section{[]string{"INBOUND", "ADDRESS", "POLICIES", "OTHER CLIENTS"}, rows}).print(d.out); err != nil {
		return err
	}
	facts := proxyFacts{applied.Facts, applied.MoreFacts}
	return facts.section().print(d.out)
}

// findings prints the findings of a check about the resource.
func (d *description) findings() error {
	report := &check.Report{}
	if err := d.get("/_check", report); err != nil {
		return err
	}
	d.unknown.addFindings(report)
	for _, f := range report.Findings {
		if f.Object == (check.Object{Type: d.key.Kind, Mesh: d.key.Mesh, Name: d.key.Name}) {
			fmt.Fprintln(d.out)
			printProblem(d.out, []check.Finding{f})
		}
	}
	return nil
}

// timeAndAge writes a time and the time since then.
func timeAndAge(t time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format("2006-01-02 15:04 UTC"), age(time.Since(t)))
}
