package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"

	"github.com/spf13/cobra"

	"weft/internal/client"
	"weft/internal/envoysim"
	"weft/kind"
)

func newExplainCommand(r *remote) *cobra.Command {
	var from, to, path, method, sni string
	var headers []string
	command := &cobra.Command{
		Use:   "explain --from NAME --to SERVICE|VIP|ADDRESS[:PORT]",
		Short: "Explain what happens to a request, and why",
		Long: `Explain a request of the application beside a proxy: listener, route, destination, endpoints, mutual TLS,
and for each endpoint the rule that allows or denies it. A request to another zone
is followed through that zone's ingresses, and one that leaves the mesh through the zone egress.

The explanation is read from the configuration that is sent to the proxies.`,
		Example: `  weft explain --from web --to backend
  weft explain --from web --to backend:80 --method POST --path /orders
  weft explain --from web --to backend --path '/orders?version=2' --header x-canary:true
  weft explain --from web --to db --sni orders.db.example.com
  weft explain --from web --to 127.0.0.1:10001 -o json`,
		Args: cobra.NoArgs,
	}
	o, zone := outputFlag(command, asText, asJSON, asYAML), r.zoneFlag(command)
	command.Flags().StringVar(&from, "from", "", "the Dataplane whose application sends the request")
	command.Flags().StringVar(&to, "to", "", "the destination: a service of any kind, a virtual IP or an address")
	command.Flags().StringVar(&path, "path", "/", "path of the request with its query, for HTTP")
	command.Flags().StringVar(&method, "method", "GET", "method of the request, for HTTP")
	command.Flags().StringArrayVarP(&headers, "header", "H", nil, "header of the request as 'NAME: VALUE', for HTTP; "+
		"several by repeating the flag")
	command.Flags().StringVar(&sni, "sni", "", "server name (SNI) that the application sends in TLS of its own")
	completeFlag(command, "from", r.completeName(kind.Dataplanes))
	completeFlag(command, "to", r.completeName(kind.MeshServices))
	_ = command.MarkFlagRequired("from") // both exist
	_ = command.MarkFlagRequired("to")
	command.RunE = func(command *cobra.Command, _ []string) error {
		query := zoneQuery(*zone)
		maps.Copy(query, url.Values{"to": {to}, "path": {path}, "method": {method}, "header": headers, "sni": {sni}})
		path := client.Path(kind.Dataplanes, r.mesh, from) + "/_explain"
		return show(r, command, path, query, o.form, func(w io.Writer, explanation *envoysim.Explanation) error {
			_, err := fmt.Fprint(w, explanation.Text())
			return err
		})
	}
	return command
}
