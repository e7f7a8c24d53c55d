package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/admit"
	"weft/internal/audit"
	"weft/internal/bundle"
	"weft/internal/check"
	"weft/internal/diag"
	"weft/internal/metrics"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/wholefile"
	"weft/kind"
)

func newBundleCommand(r *remote) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Pack diagnostics of a control plane into one archive, for support",
		Long: `Pack diagnostics of a control plane into one archive, for support into one archive: its settings, what is
stored but for secrets, what weft check says, its figures and profiles, and the last lines of its log.

No key, token or password is in it. Names and addresses of services are: look into it before you send it.`,
		Example: `  weft cp bundle
  weft cp bundle --file incident.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			var packed []byte
			if err := c.Get(command.Context(), "/_bundle", nil, &packed); err != nil {
				return err
			}
			if file == "" {
				file = "weft-bundle-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			err = wholefile.Write(file, func(w io.Writer) error {
				_, err := w.Write(packed)
				return err
			})
			if err == nil {
				command.PrintErrf("%s has %d kB.\n", file, len(packed)>>10)
			}
			return err
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "where to write it (default weft-bundle-TIME.tar.gz, here)")
	return command
}

// bundlePatience is how long a store may take for one kind.
const bundlePatience = 10 * time.Second

// whole is what a bundle is made of.
type whole struct {
	settings *settings.Settings
	instance string
	rows     store.Store
	check    func(check.Known) *check.Report
	figures  *metrics.Metrics
	log      *bundle.Tail
}

func (b *whole) handler() http.Handler {
	parts := []bundle.Section{
		{Name: "version.json", Write: asJSONLine(func() any {
			return map[string]string{"version": version, "go": runtime.Version(), "instance": b.instance, "zone": b.settings.ZoneName}
		})},
		{Name: "settings.json", Write: asJSONLine(func() any { return b.settings.Effective() })},
		{Name: "check.json", Write: asJSONLine(func() any { return b.check(check.Known{}) })},
		{Name: "process.json", Write: func(w io.Writer) error {
			process, err := diag.Read()
			if err != nil {
				return err
			}
			return json.NewEncoder(w).Encode(process)
		}},
		{Name: "metrics.txt", Write: b.figures.Write},
		{Name: "goroutines.txt", Write: func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 1) }},
		{Name: "heap.pprof", Write: pprof.WriteHeapProfile},
		{Name: "log.txt", Write: b.log.Copy},
	}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.AdminOnly || info.Encrypted {
			continue
		}
		parts = append(parts, bundle.Section{Name: "resources/" + info.Plural + ".jsonl", Write: func(w io.Writer) error { return b.resources(w, info.Name) }})
	}
	return bundle.Handler("weft-bundle-"+cmp.Or(b.settings.ZoneName, string(settings.Global)), parts)
}

func asJSONLine(value func() any) func(io.Writer) error {
	return func(w io.Writer) error { return json.NewEncoder(w).Encode(value()) }
}

// resources writes what is stored of a kind, a line each, without values in plain sight.
func (b *whole) resources(w io.Writer, kindName string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bundlePatience)
	defer cancel()
	rows, _, err := b.rows.List(ctx, kindName)
	if err != nil {
		return err
	}
	for _, row := range rows {
		o, err := admit.Decode(row)
		if err != nil {
			return err
		}
		line, err := audit.Mask(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}
