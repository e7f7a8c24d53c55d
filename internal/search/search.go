// Package search finds resources of every kind by the texts that a user may know of them: a name, an address, a host
// name, an SNI, a SPIFFE ID, a label, a KRI.
//
// A search is one pass over the resources of a snapshot, and reads what a list of them reads. It keeps no index: the
// texts of a resource change with its status, its insight and its host names, so an index would cost each commit, and
// one for the middle of texts would be larger than the texts. The cost is measured by `load reads`.
package search

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/internal/table"
	"weft/internal/topk"
	"weft/kind"
	"weft/resource"
)

// MaxText is the maximum size of a searched text, in bytes: that of a SPIFFE ID.
const MaxText = 2048

// Query is a search.
type Query struct {
	Text string // not empty; case does not matter
	Mesh string // of the resources; empty: all meshes, and the resources of none
	Size int    // the maximum number of results, 1 or more
	// Secrets are the meshes whose Secrets are searched, by their names and labels. The content of a Secret is not.
	Secrets access.MeshSet
}

// Field is the part of a resource that has a text.
type Field string

// The fields, in the order of results.
const (
	Name        Field = "name"
	DisplayName Field = "displayName" // the name in the zone of the resource
	KRI         Field = "kri"
	HostName    Field = "hostName"
	VirtualIP   Field = "virtualIP"
	Address     Field = "address"
	SNI         Field = "sni"
	SPIFFEID    Field = "spiffeID"
	Label       Field = "label"
	Tag         Field = "tag" // of an inbound
)

var fields = []Field{Name, DisplayName, KRI, HostName, VirtualIP, Address, SNI, SPIFFEID, Label, Tag}

// Quality is how a text matches.
type Quality string

// The qualities, in the order of results.
const (
	Exact  Quality = "exact"
	Prefix Quality = "prefix"
	Infix  Quality = "infix" // another part of the text
)

var qualities = []Quality{Exact, Prefix, Infix}

// Match is the reason why a resource is found: its text that matches best.
type Match struct {
	Field   Field   `json:"field"`
	Value   string  `json:"value"`
	Quality Quality `json:"quality"`
}

// rank is the place of the match among results.
func (m *Match) rank() int {
	return slices.Index(qualities, m.Quality)*len(fields) + slices.Index(fields, m.Field)
}

// Result is a found resource.
type Result struct {
	resource.Any
	Match Match
	rank  int
}

// Results are the best results of a search.
type Results struct {
	Items []Result // the best ones first
	More  int      // the number of other resources that match
}

// pause is the number of resources between two looks whether a search is still wanted.
const pause = 1000

// Run searches the resources that the reader of a world may read. It fails only where ctx ends.
func Run(ctx context.Context, w *inspect.World, q Query) (*Results, error) {
	s := newScan(w, q)
	first := topk.New(q.Size, compare)
	found, seen := 0, 0
	for i, d := range Kinds() {
		for o := range s.resources(d, q) {
			if seen++; seen%pause == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if match := s.match(d, o); match != nil {
				found++
				first.Add(Result{o.Any, *match, match.rank()*len(Kinds()) + i})
			}
		}
	}
	items := first.Slice()
	return &Results{items, found - len(items)}, nil
}

func compare(a, b *Result) int {
	x, y := a.Key(), b.Key()
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(x.Mesh, y.Mesh), cmp.Compare(x.Name, y.Name))
}

// searched are the kinds whose resources are found.
var searched = searchedKinds()

// Kinds returns the kinds whose resources are found, in the order of results: what serves requests is first. What a
// control plane writes about a resource is found as the resource.
func Kinds() []resource.Descriptor { return searched }

func searchedKinds() []resource.Descriptor {
	kinds := []resource.Descriptor{kind.Meshes, kind.Zones, kind.MeshServices, kind.MeshMultiZoneServices,
		kind.MeshExternalServices, kind.Dataplanes}
	for _, d := range kind.All() {
		owner := kind.OwnerKind(d.Describe())
		if !d.Describe().Hidden && (owner == "" || owner == kind.Meshes.Name) && !slices.Contains(kinds, d) {
			kinds = append(kinds, d)
		}
	}
	return kinds
}

// scan compares the texts of resources with that of a query.
type scan struct {
	world *inspect.World
	r     *table.Reader
	query Query
	text  string     // in lower case
	ip    netip.Addr // of the text, if it is one
	kri   string     // of the text, without a section, if it begins like one
	// key and value are the parts of the text, if it is KEY=VALUE.
	key, value string
	isPair     bool

	best Match // of the present resource; without a field there is none
}

func newScan(w *inspect.World, q Query) *scan {
	s := &scan{world: w, r: table.Eval(w.Snapshot), query: q, text: strings.ToLower(q.Text)}
	s.ip, _ = netip.ParseAddr(q.Text)
	s.key, s.value, s.isPair = strings.Cut(s.text, "=")
	if strings.HasPrefix(s.text, "kri_") {
		s.kri = s.text
		if kri, ok := resource.ParseKRI(s.text); ok {
			kri.Section = ""
			s.kri = kri.String()
		}
	}
	return s
}

// visit compares a text of the present resource.
func (s *scan) visit(field Field, value string) {
	at := indexFold(value, s.text)
	switch {
	case s.ip.IsValid() && (field == Address || field == VirtualIP) && isAddress(value, s.ip):
		s.consider(Match{field, value, Exact})
	case at < 0 || value == "":
	case at == 0 && len(value) == len(s.text):
		s.consider(Match{field, value, Exact})
	case at == 0:
		s.consider(Match{field, value, Prefix})
	default:
		s.consider(Match{field, value, Infix})
	}
}

// visitPairs compares labels or tags with KEY=VALUE: the value, or the beginning of it, of the key or one that ends so.
func (s *scan) visitPairs(field Field, pairs map[string]string) {
	if !s.isPair {
		return
	}
	for key, value := range pairs {
		lower := strings.ToLower(key)
		if !strings.HasSuffix(lower, s.key) || indexFold(value, s.value) != 0 {
			continue
		}
		quality := Infix
		switch {
		case lower == s.key && len(value) == len(s.value):
			quality = Exact
		case lower == s.key:
			quality = Prefix
		}
		s.consider(Match{field, key + "=" + value, quality})
	}
}

// consider keeps a match that is better than those before, or is equal and before them in the order of values, so that
// the result does not depend on the order of a map.
func (s *scan) consider(m Match) {
	if s.best.Field == "" || cmp.Or(cmp.Compare(m.rank(), s.best.rank()), cmp.Compare(m.Value, s.best.Value)) < 0 {
		s.best = m
	}
}

// indexFold returns the index of a text in lower case in a value of any case, or -1. Most values are in lower case.
func indexFold(value, lower string) int {
	if at := strings.Index(value, lower); at >= 0 || !strings.ContainsFunc(value, isNotLower) {
		return at
	}
	return strings.Index(strings.ToLower(value), lower)
}

func isNotLower(r rune) bool { return 'A' <= r && r <= 'Z' || r > '~' }

func isAddress(text string, ip netip.Addr) bool {
	has, err := netip.ParseAddr(text)
	return err == nil && has.Unmap() == ip.Unmap()
}
