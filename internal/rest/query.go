package rest

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"weft/kind"
	"weft/resource"
)

// query is the query of a list.
type query struct {
	size   int
	offset int       // number of resources to skip
	after  *position // the last resource of the previous page, or nil
	order  order
	keep   []filter
	reads  []resource.Descriptor // that the filters and the order read
	// proxies states that a filter or the order reads what is stored about the proxy of a Dataplane.
	proxies bool
	// strict states that the query has a parameter that Kuma's API lacks. Its pages continue at a cursor, and a
	// parameter that the list does not have is an error: clients of Kuma may send others, which are ignored.
	strict bool
}

// filter returns a function that reports whether a resource of a snapshot belongs to the list.
type filter func(*snapshot) func(*listed) bool

// matching returns a function that reports whether all filters keep a resource.
func (q *query) matching(m *snapshot) func(*listed) bool {
	var all []func(*listed) bool
	for _, keep := range q.keep {
		all = append(all, keep(m))
	}
	return func(l *listed) bool {
		for _, keeps := range all {
			if !keeps(l) {
				return false
			}
		}
		return true
	}
}

// keepWhere adds a filter that reads the resource alone.
func (q *query) keepWhere(keeps func(resource.Any) bool) {
	q.keep = append(q.keep, func(*snapshot) func(*listed) bool {
		return func(l *listed) bool { return keeps(l.Any) }
	})
}

// queryParser reads the query of a list, and collects the problems.
type queryParser struct {
	*query
	api      *api
	of       *listing
	values   url.Values
	problems resource.Problems
}

// listParameters are the parameters of every list but its filters.
var listParameters = []string{"size", "offset", "after", "sort", "name", "format"}

func (a *api) parseQuery(values url.Values, c *listing) (*query, error) {
	if n := parameters(values); n > maxFilters {
		return nil, resource.Errorf(resource.Invalid, "the query has %d parameters, at most %d are read", n, maxFilters)
	}
	p := &queryParser{query: &query{size: wholeList}, api: a, of: c, values: values}
	p.parseSort()
	p.parsePlace()
	if part := values.Get("name"); part != "" {
		p.keepWhere(func(o resource.Any) bool { return strings.Contains(o.Key().Name, part) })
	}
	p.parseFilters()
	if c.of == resource.Descriptor(kind.Dataplanes) {
		p.parseTags()
		p.parseGateway()
	}
	if p.strict {
		p.checkParameters()
	}
	if len(p.problems) > 0 {
		return nil, invalidQuery(p.problems...)
	}
	return p.query, nil
}

// parameters counts the values of a query.
func parameters(values url.Values) (n int) {
	for _, of := range values {
		n += len(of)
	}
	return n
}

// number reads a number, which is 0 where it is absent.
func (p *queryParser) number(field string, least, most int) int {
	n, err := strconv.Atoi(cmp.Or(p.values.Get(field), "0"))
	if err != nil || n < least || n > most {
		p.problems.Add(field, "%q is not a number from %d to %d", p.values.Get(field), least, most)
	}
	return n
}

// parseSort reads `sort=FIELD`, and `sort=-FIELD` for the opposite order.
func (p *queryParser) parseSort() {
	if !p.values.Has("sort") {
		return
	}
	p.strict = true
	text := p.values.Get("sort")
	name, descending := strings.CutPrefix(text, "-")
	var names []string
	for i := range orderFields {
		field := &orderFields[i]
		if field.ofStatus && p.of.status == nil {
			continue
		}
		if names = append(names, field.name); field.name == name {
			p.order = order{field, descending}
			if field.ofStatus {
				p.readStatus()
			}
		}
	}
	if p.order.field == nil {
		p.problems.Add("sort", "%q is not a field by which the list is sorted; there are %s, each with - before it "+
			"for the opposite order", text, strings.Join(names, ", "))
	}
}

// parsePlace reads the size of the page, and where it begins: `after` is a cursor, and `offset` a number or, in the
// order of row keys, the row key of the last resource of the previous page.
func (p *queryParser) parsePlace() {
	if p.values.Get("size") != "" {
		p.size = p.number("size", 1, largestPage)
	}
	if p.values.Has("after") {
		p.strict = true
		var fault string
		if p.after, fault = p.order.parseCursor(p.values.Get("after")); fault != "" {
			p.problems.Add("after", "%.300q %s", p.values.Get("after"), fault)
		}
	}
	switch at := p.values.Get("offset"); {
	case p.strict && at != "":
		p.problems.Add("offset", "does not go with sort and after; pages in an order continue at the cursor in `next`")
	case strings.Contains(at, "/"): // a number or a name has no slash
		p.after = &position{row: at}
	default:
		p.offset = p.number("offset", 0, 1<<30)
	}
}

// checkParameters rejects parameters that the list does not have, and each that is given twice.
func (p *queryParser) checkParameters() {
	known := slices.Concat(listParameters, p.of.parameters)
	if p.of.of == resource.Descriptor(kind.Dataplanes) {
		known = append(known, "tag", "gateway")
	}
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		switch isFilter := strings.HasPrefix(name, "filter["); {
		case !isFilter && !slices.Contains(known, name):
			p.problems.Add(name, "is not a parameter of this list; it has filter[...], %s", strings.Join(known, ", "))
		case name != "tag" && len(p.values[name]) > 1:
			p.problems.Add(name, "is given %d times", len(p.values[name]))
		}
	}
}

// parseTags reads `tag=NAME:VALUE`, where "*" is any value. A Dataplane matches if, for each tag, one of its inbounds
// has it.
func (p *queryParser) parseTags() {
	for _, tag := range p.values["tag"] {
		name, value, ok := strings.Cut(tag, ":")
		if !ok || name == "" {
			p.problems.Add("tag", "%q is not NAME:VALUE", tag)
			continue
		}
		p.keepWhere(func(o resource.Any) bool {
			for _, in := range dataplane(o).Spec.Networking.Inbound {
				if has, ok := in.Tags[name]; ok && (value == "*" || value == has) {
					return true
				}
			}
			return false
		})
	}
}

// parseGateway reads `gateway`, by which older clients select Dataplanes of a form that does not exist.
func (p *queryParser) parseGateway() {
	switch value := p.values.Get("gateway"); value {
	case "", "false":
	case "true", "builtin", "delegated":
		p.keepWhere(func(resource.Any) bool { return false })
	default:
		p.problems.Add("gateway", "%q is neither true nor false nor builtin nor delegated", value)
	}
}

func invalidQuery(problems ...resource.Problem) error {
	return &resource.Error{Code: resource.Invalid, Detail: "the query is invalid", Problems: problems}
}
