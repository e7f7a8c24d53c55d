package server

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

	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/bundle"
	"weft/internal/diag"
	"weft/internal/settings"
	"weft/kind"
)

// bundleTimeout is how long the store may take for one kind.
const bundleTimeout = 10 * time.Second

// bundleHandler serves the support bundle.
func (s *Server) bundleHandler() http.Handler {
	parts := []bundle.Section{
		{Name: "version.json", Write: asJSONLine(func() any {
			return map[string]string{"version": s.version, "go": runtime.Version(), "instance": s.instance,
				"zone": s.settings.ZoneName}
		})},
		{Name: "settings.json", Write: asJSONLine(func() any { return s.effectiveSettings() })},
		{Name: "check.json", Write: asJSONLine(func() any { return s.runCheck() })},
		{Name: "process.json", Write: func(w io.Writer) error {
			process, err := diag.Read()
			if err != nil {
				return err
			}
			return json.NewEncoder(w).Encode(process)
		}},
		{Name: "metrics.txt", Write: s.metrics.Write},
		{Name: "goroutines.txt", Write: func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 1) }},
		{Name: "heap.pprof", Write: pprof.WriteHeapProfile},
		{Name: "log.txt", Write: s.logTail.Copy},
	}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.AdminOnly || info.Encrypted {
			continue
		}
		parts = append(parts, bundle.Section{Name: "resources/" + info.Plural + ".jsonl",
			Write: func(w io.Writer) error { return s.resources(w, info.Name) }})
	}
	return bundle.Handler("weft-bundle-"+cmp.Or(s.settings.ZoneName, string(settings.Global)), parts)
}

func asJSONLine(value func() any) func(io.Writer) error {
	return func(w io.Writer) error { return json.NewEncoder(w).Encode(value()) }
}

// resources writes the stored resources of a kind, one per line, with secrets masked.
func (s *Server) resources(w io.Writer, kindName string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bundleTimeout)
	defer cancel()
	rows, _, err := s.store.List(ctx, kindName)
	if err != nil {
		return err
	}
	for _, row := range rows {
		o, err := admission.Decode(row)
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
