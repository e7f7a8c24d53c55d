package rest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/internal/inspect"
	"weft/resource"
)

// position is the place of a resource in an order: by the number, then the text, then the row key.
type position struct {
	number int64
	text   string
	row    string // the [state.RowKey]
}

// placed is a resource with its position.
type placed struct {
	listed
	at position
}

// order is the order of a list. The zero value is the order of row keys.
type order struct {
	field      *orderField // nil: row keys
	descending bool
}

// orderField is a field by which lists can be sorted.
type orderField struct {
	name string // in `sort`
	// ofStatus states that only lists whose form has a status have the field.
	ofStatus bool
	numeric  bool // whether the field is the number of a position, else its text
	// place returns a function that places resources of a snapshot.
	place func(m *snapshot, status *statusColumn) func(*listed) position
}

// orderFields are all fields by which lists can be sorted.
var orderFields = []orderField{
	{name: "name", place: byText(func(_ *snapshot, l *listed) string { return l.Key().Name })},
	{name: "mesh", place: byText(func(_ *snapshot, l *listed) string { return l.Key().Mesh })},
	{name: "zone", place: byText(func(m *snapshot, l *listed) string {
		return m.State.Tables.OwnerOf(l.Envelope()).Zone
	})},
	{name: "creationTime", numeric: true, place: byTime(func(meta *resource.Meta) time.Time { return meta.Created })},
	{name: "modificationTime", numeric: true,
		place: byTime(func(meta *resource.Meta) time.Time { return meta.Modified })},
	{name: "status", ofStatus: true, numeric: true, place: byStatus},
}

func byText(text func(*snapshot, *listed) string) func(*snapshot, *statusColumn) func(*listed) position {
	return func(m *snapshot, _ *statusColumn) func(*listed) position {
		return func(l *listed) position { return position{text: text(m, l), row: l.rowKey()} }
	}
}

func byTime(of func(*resource.Meta) time.Time) func(*snapshot, *statusColumn) func(*listed) position {
	return func(*snapshot, *statusColumn) func(*listed) position {
		return func(l *listed) position { return position{number: of(l.Envelope()).UnixNano(), row: l.rowKey()} }
	}
}

// statusRanks is the order of statuses: what does not serve is first.
var statusRanks = []inspect.Status{inspect.NotAvailable, inspect.Offline, inspect.PartiallyDegraded, inspect.Online}

func byStatus(m *snapshot, status *statusColumn) func(*listed) position {
	of := status.of(m)
	return func(l *listed) position {
		return position{number: int64(slices.Index(statusRanks, of(l))), row: l.rowKey()}
	}
}

// isOfRows reports whether the order is that of row keys in a list of a mesh, or of all where the mesh is empty.
func (o *order) isOfRows(d resource.Descriptor, mesh string) bool {
	switch {
	case o.field == nil:
		return true
	case o.descending:
		return false
	}
	return o.field.name == "name" && (mesh != "" || d.Describe().Scope == resource.Global)
}

// placing returns a function that places resources of a snapshot.
func (o *order) placing(m *snapshot, status *statusColumn) func(*listed) position {
	if o.field == nil {
		return func(l *listed) position { return position{row: l.rowKey()} }
	}
	return o.field.place(m, status)
}

// compare returns the order of two positions, as [cmp.Compare] does.
func (o *order) compare(a, b *position) int {
	order := cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.text, b.text), strings.Compare(a.row, b.row))
	if o.descending {
		return -order
	}
	return order
}

// String returns the order as the parameter `sort` has it; empty: that of row keys.
func (o *order) String() string {
	switch {
	case o.field == nil:
		return ""
	case o.descending:
		return "-" + o.field.name
	}
	return o.field.name
}

// cursorSeparator separates the parts of a cursor. No name of a mesh, a zone or a resource has it.
const cursorSeparator = "~"

// cursor returns the text of a position, in which the order stands.
func (o *order) cursor(at *position) string {
	value := at.text
	if o.field != nil && o.field.numeric {
		value = strconv.FormatInt(at.number, 10)
	}
	return strings.Join([]string{o.String(), value, at.row}, cursorSeparator)
}

// parseCursor returns the position of a cursor of this order, or the reason why the text is none.
func (o *order) parseCursor(text string) (at *position, fault string) {
	parts := strings.Split(text, cursorSeparator)
	if len(parts) != 3 {
		return nil, "is no cursor of a list; use `next` of a page"
	}
	if parts[0] != o.String() {
		return nil, "is a cursor of another order; use it with sort=" + parts[0] + ", or begin with the first page"
	}
	at = &position{text: parts[1], row: parts[2]}
	if o.field == nil || !o.field.numeric {
		return at, ""
	}
	var err error
	if at.number, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return nil, "is no cursor of a list; use `next` of a page"
	}
	at.text = ""
	return at, ""
}
