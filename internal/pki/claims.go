package pki

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weft/kind"
	"weft/resource"
)

// Claims are the claims of a token: [DataplaneClaims], [UserClaims] or [ZoneClaims].
type Claims interface {
	jwt.Claims
	// Realm returns the realm whose keys sign the token.
	Realm() Realm
	// check returns an error for claims that no valid token has.
	check() error
	registered() *jwt.RegisteredClaims
	// empty returns new claims of the same kind.
	empty() Claims
}

// DataplaneClaims are the proxies for which a dataplane token is valid, and the facts of them that it vouches for. An
// empty field restricts nothing and vouches for nothing, except Mesh, which is required, and Type.
type DataplaneClaims struct {
	Name   string              `json:"Name,omitempty"`   // of the Dataplane
	Mesh   string              `json:"Mesh"`             // of the Dataplane
	Tags   map[string][]string `json:"Tags,omitempty"`   // every inbound has each tag, with one of the values
	Labels map[string]string   `json:"Labels,omitempty"` // the Dataplane has each label; never kuma.io/workload
	// roles, of [Roles], separated by commas; empty: "dataplane"
	Type     string `json:"Type,omitempty"`
	Workload string `json:"Workload,omitempty"` // the label kuma.io/workload
	// DataplaneLabels are labels that the Dataplane may have, and InboundTags values of tags that an inbound may have.
	// The token vouches for them, and they restrict nothing.
	DataplaneLabels map[string]string   `json:"DataplaneLabels,omitempty"`
	InboundTags     map[string][]string `json:"InboundTags,omitempty"`
	// Addresses are IP addresses, networks and host names that inbounds may have. The token vouches for them and
	// restricts nothing, so that a proxy may move.
	Addresses []string `json:"Addresses,omitempty"`
	jwt.RegisteredClaims
}

// UserClaims identify a user of the API.
type UserClaims struct {
	Name   string   `json:"Name"`
	Groups []string `json:"Groups,omitempty"`
	jwt.RegisteredClaims
}

// ZoneClaims are the zone of a token and its uses.
type ZoneClaims struct {
	Zone  string   `json:"Zone"`
	Scope []string `json:"Scope"` // of [ZoneScopes]
	jwt.RegisteredClaims
}

// Roles are the roles that a token can give a Dataplane: a proxy beside an application, a zone egress, a zone ingress.
var Roles = []string{kind.DataplaneRole, kind.EgressRole, kind.IngressRole}

// TypeOf returns the value of DataplaneClaims.Type for roles, sorted and each once; without roles, "dataplane". Its
// error names the first role that does not exist.
func TypeOf(roles []string) (string, error) {
	for _, role := range roles {
		if !slices.Contains(Roles, role) {
			return "", fmt.Errorf("is %q, want %s, or several of them separated by commas", role,
				strings.Join(Roles, ", "))
		}
	}
	if len(roles) == 0 {
		return kind.DataplaneRole, nil
	}
	sorted := slices.Clone(roles)
	slices.Sort(sorted)
	return strings.Join(slices.Compact(sorted), ","), nil
}

// RolesOf returns the roles of a value of DataplaneClaims.Type.
func RolesOf(claim string) []string {
	if claim == "" {
		return []string{kind.DataplaneRole}
	}
	return strings.Split(claim, ",")
}

// ZoneScopes are the uses of a zone token: by the zone's control plane, its ingress, its egress.
var ZoneScopes = []string{"cp", "ingress", "egress"}

// Realm implements [Claims].
func (c *DataplaneClaims) Realm() Realm { return DataplaneRealm(c.Mesh) }

// Realm implements [Claims].
func (c *UserClaims) Realm() Realm { return UserRealm }

// Realm implements [Claims].
func (c *ZoneClaims) Realm() Realm { return ZoneRealm }

var meshName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (c *DataplaneClaims) check() error {
	if !meshName.MatchString(c.Mesh) {
		return errors.New("a dataplane token needs the name of a mesh")
	}
	if _, err := TypeOf(RolesOf(c.Type)); err != nil {
		return fmt.Errorf("the type of the token %w", err)
	}
	if _, twice := c.Labels[kind.WorkloadLabel]; twice {
		return fmt.Errorf("the label %s is the claim Workload of a token", kind.WorkloadLabel)
	}
	for _, address := range c.Addresses {
		if problem := AddressProblem(address); problem != "" {
			return fmt.Errorf("the address %.100q of a token %s", address, problem)
		}
	}
	return nil
}

// AddressProblem returns why a token can't vouch for an address; empty: it is an IP address, a network in its shortest
// form, or a host name.
func AddressProblem(address string) string {
	if strings.Contains(address, "/") {
		if network, err := netip.ParsePrefix(address); err != nil || network != network.Masked() {
			return "is no network such as 10.0.0.0/8"
		}
		return ""
	}
	if _, err := netip.ParseAddr(address); err != nil && !kind.IsDNSName(address) {
		return "is no IP address, network or host name"
	}
	return ""
}

func (c *UserClaims) check() error {
	if strings.TrimSpace(c.Name) == "" {
		return errors.New("a user token needs the name of its user")
	}
	return nil
}

func (c *ZoneClaims) check() error {
	if !meshName.MatchString(c.Zone) {
		return errors.New("a zone token needs the name of a zone")
	}
	for _, scope := range c.Scope {
		if !slices.Contains(ZoneScopes, scope) {
			return fmt.Errorf("a zone token has no scope %q, only %s", scope, strings.Join(ZoneScopes, ", "))
		}
	}
	return nil
}

func (*DataplaneClaims) empty() Claims { return &DataplaneClaims{} }
func (*UserClaims) empty() Claims      { return &UserClaims{} }
func (*ZoneClaims) empty() Claims      { return &ZoneClaims{} }

// Validity returns the times between which claims are valid; zero where they state none.
func Validity(c Claims) (notBefore, expires time.Time) {
	registered := c.registered()
	if registered.NotBefore != nil {
		notBefore = registered.NotBefore.Time
	}
	if registered.ExpiresAt != nil {
		expires = registered.ExpiresAt.Time
	}
	return notBefore, expires
}

func (c *DataplaneClaims) registered() *jwt.RegisteredClaims { return &c.RegisteredClaims }
func (c *UserClaims) registered() *jwt.RegisteredClaims      { return &c.RegisteredClaims }
func (c *ZoneClaims) registered() *jwt.RegisteredClaims      { return &c.RegisteredClaims }

// UnmarshalJSON implements json.Unmarshaler.
func (c *DataplaneClaims) UnmarshalJSON(text []byte) error {
	type plain DataplaneClaims
	return strict(text, (*plain)(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *UserClaims) UnmarshalJSON(text []byte) error {
	type plain UserClaims
	return strict(text, (*plain)(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *ZoneClaims) UnmarshalJSON(text []byte) error {
	type plain ZoneClaims
	return strict(text, (*plain)(c))
}

// strict rejects claims of another kind, so that a token of one kind is invalid as another, even if an operator stores
// the same key for both.
func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Names returns nil if the token is valid for proxies with this mesh and name, regardless of its other claims.
func (c *DataplaneClaims) Names(mesh, name string) error {
	if c.Mesh != mesh {
		return fmt.Errorf("the token is for the mesh %q, and the proxy says it is of %q", c.Mesh, mesh)
	}
	if c.Name != "" && c.Name != name {
		return fmt.Errorf("the token is for the Dataplane %q, and the proxy says it is %q", c.Name, name)
	}
	return nil
}

// Permits returns nil if the token is valid for the Dataplane. A tag of the token must be on every inbound: the others
// would vouch for an inbound without it. A token with the Dataplane's name stays valid if an operator changes the
// Dataplane's workload, label or service. [DataplaneClaims.Sections] decides about zone proxy sections.
func (c *DataplaneClaims) Permits(o *resource.Object[kind.Dataplane]) error {
	if err := c.Names(o.Mesh, o.Name); err != nil {
		return err
	}
	byOperator := func(fact string) bool { return c.Name == o.Name && slices.Contains(o.Vouched.Operator, fact) }
	workload := kind.LabelFact(kind.WorkloadLabel, o.Label(kind.WorkloadLabel))
	if c.Workload != "" && !c.Vouches(workload) && !byOperator(workload) {
		return fmt.Errorf("the token is for the workload %q, and the Dataplane's label %s is %q", c.Workload,
			kind.WorkloadLabel, o.Label(kind.WorkloadLabel))
	}
	for _, label := range slices.Sorted(maps.Keys(c.Labels)) {
		got, has := o.Labels[label]
		switch {
		case has && (got == c.Labels[label] || byOperator(kind.LabelFact(label, got))):
		case !has:
			return fmt.Errorf("the token asks for the label %s: %s, and the Dataplane does not have that label", label,
				c.Labels[label])
		default:
			return fmt.Errorf("the token asks for the label %s: %s, and the Dataplane has %q", label, c.Labels[label],
				got)
		}
	}
	if slices.Contains(o.Spec.Networking.Roles(), kind.DataplaneRole) && !c.has(kind.DataplaneRole) {
		return fmt.Errorf("the token is of type %s, and %s has more than zone proxy sections; make one with `%s`",
			c.Type, o.Key(), tokenCommand(o, nil))
	}
	if len(c.Tags) > 0 && len(o.Spec.Networking.Inbound) == 0 {
		return errors.New("the token asks for tags, and the Dataplane has no inbound that could have them")
	}
	for i, in := range o.Spec.Networking.Inbound {
		for tag, values := range c.Tags {
			got, ok := in.Tags[tag]
			if tag == kind.ServiceTag && byOperator(kind.ServiceFact(got)) {
				continue
			}
			if !ok || !slices.Contains(values, got) {
				return fmt.Errorf(
					"the token asks for the tag %s: %s on every inbound, and networking.inbound[%d] has %q", tag,
					strings.Join(values, "|"), i, got)
			}
		}
	}
	return nil
}
