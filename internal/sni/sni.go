// Package sni generates the SNIs of service ports. A client of another zone sends the SNI in its TLS handshake, and the
// zone ingress forwards the connection by it, without decryption.
//
// An SNI is a function of its [Port] and its [Format] alone, so every control plane can check whether the owner of a
// service could have generated it. It is a host name: letters, digits and '-' in labels of at most 63 characters, 253
// in all (RFC 1035, section 2.3.4; RFC 1123, section 2.1). The SNIs of two ports differ, and so do those of two
// formats. (SNI in the resource definition.)
package sni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"regexp"
	"slices"
	"strconv"

	"weft/kind"
	"weft/resource"
)

// Port is one port of a service, as the whole mesh knows it.
type Port struct {
	Kind string // MeshService, MeshMultiZoneService or MeshExternalService
	Mesh string
	// Zone owns the service. It is empty for a service of global, and for a MeshMultiZoneService of any owner, so that
	// its SNIs stay when a zone joins.
	Zone      string
	Namespace string // on Kubernetes; else empty
	Name      string // as its owner calls it
	Number    uint32
}

// PortOf returns the port of a service, stored in its own zone or in another one.
func PortOf(o resource.Any, number uint32) Port {
	meta := o.Envelope()
	port := Port{
		Kind: o.Key().Kind, Mesh: meta.Mesh, Zone: kind.OwnerOf(meta).Zone,
		Namespace: meta.Label(kind.NamespaceLabel), Name: kind.DisplayNameOf(meta), Number: number,
	}
	if port.Kind == kind.MeshMultiZoneServices.Name {
		port.Zone = ""
	}
	return port
}

// identity writes the fields that distinguish the port from all others. No field contains the separator.
func (p Port) identity(to io.Writer) {
	fmt.Fprintf(to, "%s\x00%s\x00%s\x00%s\x00%s", p.Name, p.Mesh, p.Kind, p.Zone, p.Namespace)
}

// suffixes end every name, and say which kind of service it is of. A zone proxy takes connections for these
// alone. The kind of external services is served by zone egresses.
var suffixes = map[string]string{
	kind.MeshServices.Name:          "ms",
	kind.MeshMultiZoneServices.Name: "mzms",
	kind.MeshExternalServices.Name:  "mes",
}

// Format makes names.
type Format interface {
	// String is how users call it.
	String() string
	// Name returns the SNI of a port.
	Name(Port) string
}

// The formats, in the order in which they came.
var (
	// V1 is "a" and 16 hexadecimal digits of FNV-1a (64 bits), then NAME.PORT.MESH.ms, with names of more than
	// 63 characters cut: a reader of a log recognizes the service.
	V1 Format = v1{}
	// V2 is "b" and 32 hexadecimal digits of SHA-256, then PORT.ms: an observer of the network does not
	// recognize the service, and no user can choose a name that collides with another's.
	V2 Format = v2{}
)

// Formats are all of them, in the order in which they came.
func Formats() []Format { return []Format{V1, V2} }

// Free returns the SNI of a port in a format or, where another service has that SNI, in [V2]: the hash of V1 has 64
// bits, and a name can be made whose hash is that of another one.
func Free(format Format, port Port, isTaken func(name string) bool) string {
	name := format.Name(port)
	if isTaken(name) {
		return V2.Name(port)
	}
	return name
}

// FormatNamed finds a format by its String; nil where there is none.
func FormatNamed(name string) Format {
	for _, f := range Formats() {
		if f.String() == name {
			return f
		}
	}
	return nil
}

// FormatOf returns the format in which a value is the SNI of a port; nil if there is none.
func FormatOf(value string, port Port) Format {
	for _, f := range Formats() {
		if f.Name(port) == value {
			return f
		}
	}
	return nil
}

// Own returns the SNIs that the port can have. It drops those with a former name of the zone.
func Own(names []kind.SNI, port Port) []kind.SNI {
	return slices.DeleteFunc(slices.Clone(names), func(name kind.SNI) bool { return FormatOf(name.Value, port) == nil })
}

// InAllFormats returns the SNIs of a port in every format, oldest first. Zone egresses accept all SNIs of an external
// service: a MeshExternalService lists none, so that clients need not wait until an egress supports another format.
func InAllFormats(port Port) []string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name(port))
	}
	return names
}

type v1 struct{}

func (v1) String() string { return "v1" }

func (v1) Name(p Port) string {
	h := fnv.New64a()
	p.identity(h)
	return fmt.Sprintf("a%016x.%s.%d.%s.%s", h.Sum64(), cut(p.Name), p.Number, cut(p.Mesh), suffixes[p.Kind])
}

// cut keeps a name within the length of a label. What follows a dot or a dash at the end is a letter, so that
// it stays a name.
func cut(name string) string {
	const most = 63
	if len(name) <= most {
		return name
	}
	return name[:most-1] + "x"
}

type v2 struct{}

func (v2) String() string { return "v2" }

func (v2) Name(p Port) string {
	h := sha256.New()
	p.identity(h)
	return fmt.Sprintf("b%s.%d.%s", hex.EncodeToString(h.Sum(nil)[:16]), p.Number, suffixes[p.Kind])
}

var (
	formV1 = regexp.MustCompile(`^a[0-9a-f]{16}\.[-a-z0-9.]{1,63}\.([1-9][0-9]{0,4})\.[-a-z0-9]{1,63}\.([a-z]+)$`)
	formV2 = regexp.MustCompile(`^b[0-9a-f]{32}\.([1-9][0-9]{0,4})\.([a-z]+)$`)
)

// Parsed has the fields that can be parsed from an SNI.
type Parsed struct {
	Format Format
	Kind   string
	Number uint32 // of the port
}

// Parse parses an SNI. The result does not include the owner. It returns false for an SNI of no format.
func Parse(value string) (told Parsed, ok bool) {
	for _, form := range []struct {
		format Format
		parts  []string
	}{{V1, formV1.FindStringSubmatch(value)}, {V2, formV2.FindStringSubmatch(value)}} {
		if form.parts == nil {
			continue
		}
		number, err := strconv.ParseUint(form.parts[1], 10, 16)
		of := kindOf(form.parts[2])
		return Parsed{form.format, of, uint32(number)}, err == nil && of != ""
	}
	return Parsed{}, false
}

func kindOf(suffix string) string {
	for kind, s := range suffixes {
		if s == suffix {
			return kind
		}
	}
	return ""
}
