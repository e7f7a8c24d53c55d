// Package access has the permissions of users: the identity of a caller, and the rules of what it may do.
//
// It does not depend on a transport. Servers authenticate callers by a token, a certificate or a socket, and check
// [Rules] before they act. Without a rule that allows it, an action is denied.
package access

import (
	"context"
	"slices"
	"strings"

	"weft/resource"
)

// Groups that the control plane itself puts users into.
const (
	AdminGroup           = "mesh-system:admin"
	AuthenticatedGroup   = "mesh-system:authenticated"   // every authenticated user
	UnauthenticatedGroup = "mesh-system:unauthenticated" // every other caller
)

// AdminName is the user behind the administrator's socket, and of the token that the first start makes.
const AdminName = "mesh-system:admin"

// Proof is the means by which a caller authenticated.
type Proof string

// The audit log records these values.
const (
	NoProof          Proof = "none"
	ByAdminSocket    Proof = "adminSocket"    // the control plane's unix socket
	ByUserToken      Proof = "userToken"      // a user token
	ByCertificate    Proof = "certificate"    // a TLS client certificate
	ByDataplaneToken Proof = "dataplaneToken" // a proxy's agent
	ByZoneToken      Proof = "zoneToken"      // the agent of a ZoneIngress
	ByGlobal         Proof = "global"         // the global control plane, which authenticated the caller
	ByReplica        Proof = "replica"        // another replica, which authenticated the caller
)

// User is a caller.
type User struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
	Proof  Proof    `json:"proof"`
	// TokenID is the id of the token that is the proof, by which it can be revoked.
	TokenID string `json:"tokenId,omitempty"`

	// permitted is the only action of a caller that another control plane authenticated.
	permitted Action
}

// NewUser returns an authenticated user, with the groups of its credential.
func NewUser(name string, groups []string, by Proof) User {
	if !slices.Contains(groups, AuthenticatedGroup) {
		groups = append(slices.Clone(groups), AuthenticatedGroup)
	}
	return User{Name: name, Groups: groups, Proof: by}
}

// NewPermitted returns a user that another control plane authenticated, global or a replica, and permitted one action.
// The rules of this control plane permit it nothing.
func NewPermitted(by Proof, name string, groups []string, action Action) User {
	return User{Name: name, Groups: groups, Proof: by, permitted: action}
}

// Anonymous returns a caller without a credential.
func Anonymous() User {
	return User{Name: "mesh-system:anonymous", Groups: []string{UnauthenticatedGroup}, Proof: NoProof}
}

// Known returns whether the user is authenticated.
func (u User) Known() bool { return u.Proof != NoProof && u.Proof != "" }

// String reads as `user "ann" (groups ops, mesh-system:authenticated)`.
func (u User) String() string {
	return `user "` + u.Name + `" (groups ` + strings.Join(u.Groups, ", ") + ")"
}

// isForwarded reports whether another control plane authenticated the user.
func (u User) isForwarded() bool { return u.Proof == ByGlobal || u.Proof == ByReplica }

// Rule has the users, and the groups whose members, may do something: in every mesh, and to objects of global scope.
type Rule struct {
	Users, Groups []string
	// Limited has further rules, which are limited to meshes.
	Limited []MeshRule
}

// allows reports whether a user is one of users, or a member of one of groups.
func allows(users, groups []string, u User) bool {
	return slices.Contains(users, u.Name) ||
		slices.ContainsFunc(groups, func(group string) bool { return slices.Contains(u.Groups, group) })
}

// Rules are the rule of each action. An action without a rule is denied to all.
type Rules map[Action]Rule

// Check returns nil if a user may do something to what a scope has. Requested describes the request: a path, or an
// object as the request names it. Otherwise the error names both and the settings that decide: Unauthorized for an
// unauthenticated caller, else Forbidden. Its text is the same whether an object exists or not.
func (r Rules) Check(u User, action Action, scope Scope, requested string) error {
	switch {
	case r.Meshes(u, action).Permits(scope):
		return nil
	case u.isForwarded():
		return resource.Errorf(resource.Forbidden, "the other control plane permitted %s the action %.100q, and "+
			"%s is the action %s", u, u.permitted, requested, action)
	case !u.Known():
		return resource.Errorf(resource.Unauthorized, "prove who you are: with a user token in the header "+
			"`Authorization: Bearer TOKEN`, or with a TLS client certificate; an administrator makes tokens with "+
			"`weft generate user-token`; "+
			"the user that runs the control plane, and root on its machine, need none with `weft --api "+
			"unix:DIR/admin.sock`, DIR the data directory, or with `curl --unix-socket DIR/admin.sock -H "+
			"@DIR/admin.header`")
	case action == Preview && r[Preview].meshes(u).Permits(scope):
		action = Read // which a preview needs too
	}
	return resource.Errorf(resource.Forbidden, "%s may not %s%s: %s; the action is %s, and the settings %s list who "+
		"may", u, action.VerbPhrase(), r.limits(u, action), requested, action, action.settings())
}

// limits states in which meshes alone a user may do something; empty where it may nowhere.
func (r Rules) limits(u User, action Action) string {
	switch names := r.Meshes(u, action).Names(); len(names) {
	case 0:
		return ""
	case 1:
		return " outside the mesh " + names[0]
	default:
		return " outside the meshes " + strings.Join(names, ", ")
	}
}

// AllowedActions returns the actions that a user may do in one mesh at least, in the order of [Actions].
func (r Rules) AllowedActions(u User) []Action {
	allowed := []Action{}
	for _, d := range Actions {
		if r.Meshes(u, d.Action).Permits(AnyMesh) {
			allowed = append(allowed, d.Action)
		}
	}
	return allowed
}

type userKey struct{}

// WithUser returns a context with the caller.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// Administrator is a caller that opened the administrator's socket.
func Administrator() User {
	return NewUser(AdminName, []string{AdminGroup}, ByAdminSocket)
}

// UserOf returns the caller, [Anonymous] where it is not known.
func UserOf(ctx context.Context) User {
	if u, ok := ctx.Value(userKey{}).(User); ok {
		return u
	}
	return Anonymous()
}
