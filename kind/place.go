package kind

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Place is the traffic, or the proxy, that an effective conf is about. Policies of every kind are evaluated at places
// alone: what else a conf does depends on nothing but its values.
type Place struct {
	Direction Direction
	// Role is the role of the proxy for the traffic.
	Role Role
	// Protocol is the protocol of the traffic; empty: it is not known, or the conf is about the whole proxy.
	Protocol Protocol
	// Route is true where an item about a MeshHTTPRoute has the field.
	Route bool
	// ByID and BySNI are true where a rule matches callers by their SPIFFE ID, and by the SNI that they call.
	ByID, BySNI bool
	// Secured is true where the proxy has an identity, without which it does not know its callers.
	Secured bool
	// Transparent is true where the connections of the application are redirected to the proxy.
	Transparent bool
}

// Direction is the direction of the traffic that a conf is about.
type Direction uint8

// Directions. A conf about the whole proxy has none.
const (
	WholeProxy Direction = iota
	Sent
	Received
)

// Role is the role of a proxy for some traffic.
type Role uint8

// Roles. A sidecar has an application.
const (
	Sidecar Role = iota
	ZoneIngressRole
	ZoneEgressRole
)

// requestProtocols are the protocols with requests.
var requestProtocols = []Protocol{HTTP, HTTP2, GRPC}

// FieldRule says where fields of the confs of a kind have an effect. A field without a rule has one everywhere.
type FieldRule[C any] struct {
	// Prefix is the beginning of the paths of the fields, such as "http."; empty: of every field.
	Prefix string
	// Protocols are the protocols of the traffic that the fields are about; nil: every one.
	Protocols []Protocol
	// Connections is true for fields about connections. Requests of several routes, and of several callers, share a
	// connection, so such a field is not about single ones.
	Connections bool
	// Merged is true where a field that another policy sets may give the fields an effect.
	Merged bool
	// Reason returns another reason why the fields have no effect at a place; empty: they have one. Optional.
	Reason func(conf *C, field string, at *Place) string
}

// NoEffectReason implements [Policy].
func (k *PolicyKind[S, C]) NoEffectReason(conf any, field string, at *Place) string {
	if reason := at.unknownCallers(); reason != "" {
		return reason
	}
	c, _ := conf.(*C)
	for i := range k.Fields {
		rule := &k.Fields[i]
		if !strings.HasPrefix(field, rule.Prefix) {
			continue
		}
		if rule.Protocols != nil && at.Protocol != "" && !slices.Contains(rule.Protocols, at.Protocol) {
			return fmt.Sprintf("the protocol is %s", at.Protocol)
		}
		if rule.Connections && at.Route {
			return "it is about connections, which the requests of all routes share; target the service"
		}
		if rule.Reason != nil {
			if reason := rule.Reason(c, field, at); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// unknownCallers returns why no rule with the matches of the place matches a caller there; empty: it may match one.
func (p *Place) unknownCallers() string {
	switch {
	case p.BySNI && p.Role != ZoneEgressRole:
		return "the rule has an SNI, and only zone egresses have filter chains by SNI"
	case p.ByID && p.Role == ZoneIngressRole:
		return "a zone ingress doesn't decrypt connections, so it knows no caller"
	case p.ByID && !p.Secured:
		return "without an identity, a Dataplane does not know its callers"
	}
	return ""
}

// OwnFields implements [Policy].
func (k *PolicyKind[S, C]) OwnFields(conf any) []string {
	return fieldsOf(k.Fields, conf.(*C), func(rule *FieldRule[C]) bool { return rule.Prefix != "" && !rule.Merged })
}

// fieldsOf returns the fields of a conf with some rules, by the paths of their rules.
func fieldsOf[C any](rules []FieldRule[C], conf *C, with func(*FieldRule[C]) bool) []string {
	var fields []string
	for i := range rules {
		if path := strings.TrimRight(rules[i].Prefix, ".["); with(&rules[i]) && isSet(reflect.ValueOf(conf), path) {
			fields = append(fields, path)
		}
	}
	return fields
}

func ofConnections[C any](rule *FieldRule[C]) bool { return rule.Connections }

// isSet reports whether a value has a field that is not zero, by its path.
func isSet(v reflect.Value, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return false
		}
		field, _ := v.Type().FieldByNameFunc(func(of string) bool { return strings.EqualFold(of, name) })
		v = v.FieldByIndex(field.Index)
	}
	return !v.IsZero()
}
