package rest

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"weft/resource"
)

// pageParameters are those of a page; names with "[" at the end are beginnings.
var pageParameters = append([]string{zoneParameter, "filter["}, listParameters...)

// knownParameters are the parameters of the queries at paths that reject others, by the end of the path. The first end
// that matches counts.
var knownParameters = []struct {
	end   string
	names []string
}{
	{"/_check", []string{"mesh"}},
	{"/_config", []string{zoneParameter, "shadow", "include"}},
	{"/_snapshot", []string{zoneParameter}},
	{"/_explain", []string{zoneParameter, "to", "method", "path", "header", "sni"}},
	{"/services/{name}/_inspect", []string{zoneParameter, "type"}},
	{"/zones/_inspect", nil},
	{"/zones/_links", nil},
	{"/dataplanes/_sync", nil},
	{"/{name}/_inspect", []string{zoneParameter, "sections"}},
	{"/{name}/_sync", []string{zoneParameter}},
	{"/_backing", []string{zoneParameter, "size", "offset"}},
	{"/{name}/_status", []string{zoneParameter}},
	{"/_status", []string{kriParameter}},
	{"/_hostnames", []string{zoneParameter}},
	{"/{name}/_dataplanes", pageParameters},
	{"/{name}/dataplanes", pageParameters},
	{"/_resources/dataplanes", pageParameters},
	{"/-resources/dataplanes", pageParameters},
}

// checkParameters returns an error for the parameters of a query that the path does not have. A parameter that is
// ignored would be another question than that of the caller.
func (row *route) checkParameters(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	for i := range knownParameters {
		if known := &knownParameters[i]; strings.HasSuffix(row.pattern, known.end) {
			return unknownParameters(r, known.names...)
		}
	}
	return nil
}

// unknownParameters returns an error for the parameters of a query that are none of names, or that are given twice.
func unknownParameters(r *http.Request, names ...string) error {
	var problems resource.Problems
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.ContainsFunc(names, func(known string) bool {
			return name == known || strings.HasSuffix(known, "[") && strings.HasPrefix(name, known)
		}):
			problems.Add(name, "is not a parameter of this path")
		case len(query[name]) > 1 && name != "header": // a request has several
			problems.Add(name, "is given %d times", len(query[name]))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return invalidQuery(problems...)
}
