package access

import "weft/resource"

// Action is something that a rule of the settings allows, by its name there.
type Action string

const (
	// Open is allowed for every caller, without a rule.
	Open Action = "open"
	// Known is allowed for every authenticated caller, without a rule.
	Known Action = "known"
)

// Actions that rules allow.
const (
	Read                 Action = "read"
	Preview              Action = "preview"
	Write                Action = Action(resource.Writer)
	OperatorResources    Action = Action(resource.Operator)
	AdminResources       Action = Action(resource.Administrator)
	GenerateDPToken      Action = "generateDPToken"
	GenerateUserToken    Action = "generateUserToken"
	GenerateZoneToken    Action = "generateZoneToken"
	ViewConfigDump       Action = "viewConfigDump"
	ViewStats            Action = "viewStats"
	ViewClusters         Action = "viewClusters"
	ControlPlaneMetadata Action = "controlPlaneMetadata"
	ViewMetrics          Action = "viewMetrics"
	ViewDiagnostics      Action = "viewDiagnostics"
)

// Description is the description of an action in the settings.
type Description struct {
	Action Action
	Env    string // of its two variables, between "KUMA_ACCESS_STATIC_" and "_USERS" or "_GROUPS"
	Doing  string // the action as a verb phrase
	Groups []string
	// OfMeshes states that rules may limit the action to meshes. Other actions concern the whole control plane.
	OfMeshes bool
}

// Actions are all actions that have a rule, with the groups that may by default.
var Actions = []Description{
	{Read, "READ", "read resources and values derived from them", []string{AdminGroup, AuthenticatedGroup}, true},
	{Preview, "PREVIEW", "preview changes to what they may read", []string{AdminGroup, AuthenticatedGroup}, true},
	{Write, "WRITE", "write and delete policies, routes, MeshServices and Dataplanes", []string{AdminGroup}, true},
	{OperatorResources, "OPERATOR_RESOURCES", "write and delete resources that speak for a whole mesh, and vouch for " +
		"the Dataplanes that they write", []string{AdminGroup}, true},
	{AdminResources, "ADMIN_RESOURCES", "read and write Secrets and GlobalSecrets, and refer to them",
		[]string{AdminGroup}, true},
	{GenerateDPToken, "GENERATE_DP_TOKEN", "generate dataplane tokens", []string{AdminGroup}, true},
	{GenerateUserToken, "GENERATE_USER_TOKEN", "generate user tokens with any name and groups", []string{AdminGroup},
		false},
	{GenerateZoneToken, "GENERATE_ZONE_TOKEN", "generate zone tokens", []string{AdminGroup}, false},
	{ViewConfigDump, "GET_CONFIG_DUMP", "view the configuration of a proxy", []string{AdminGroup}, true},
	{ViewStats, "VIEW_STATS", "view the statistics of a proxy", []string{AdminGroup}, true},
	{ViewClusters, "VIEW_CLUSTERS", "view the clusters of a proxy", []string{AdminGroup}, true},
	{ControlPlaneMetadata, "CONTROL_PLANE_METADATA", "view the settings of the control plane", []string{AdminGroup},
		false},
	{ViewMetrics, "VIEW_METRICS", "view the metrics of the control plane", []string{AdminGroup}, false},
	{ViewDiagnostics, "VIEW_DIAGNOSTICS", "view profiles and runtime data of the control plane's process",
		[]string{AdminGroup}, false},
}

// Defaults are the rules where the settings say nothing: the administrator may do everything.
func Defaults() Rules {
	rules := Rules{}
	for _, d := range Actions {
		rules[d.Action] = Rule{Users: []string{AdminName}, Groups: d.Groups}
	}
	return rules
}

// ReadOf returns the action of reading resources of a kind.
func ReadOf(info *resource.Info) Action {
	if info.AdminOnly {
		return AdminResources
	}
	return Read
}

// PreviewOf returns the action of a preview of a write to resources of a kind by a user who may not write it.
func PreviewOf(info *resource.Info) Action {
	if info.AdminOnly {
		return AdminResources // the result tells whether a value is the stored one
	}
	return Preview
}

// WriteOf returns the action of writing and deleting resources of a kind. No rule allows that of a kind which only the
// control plane writes.
func WriteOf(info *resource.Info) Action { return Action(info.WrittenBy) }

func (a Action) description() Description {
	for _, d := range Actions {
		if d.Action == a {
			return d
		}
	}
	return Description{Action: a, Env: string(a), Doing: string(a)}
}

// VerbPhrase returns the action as a verb phrase: "write and delete resources".
func (a Action) VerbPhrase() string { return a.description().Doing }

// SettingPath returns the path of the setting of its users or groups: "users" or "groups".
func (a Action) SettingPath(of string) string { return "access.static." + string(a) + "." + of }

// Variable names the setting of its users or groups: "USERS" or "GROUPS".
func (a Action) Variable(of string) string {
	return "KUMA_ACCESS_STATIC_" + a.description().Env + "_" + of
}

// MeshesSetting and MeshesVariable name the setting with the rules that are limited to meshes.
const (
	MeshesSetting  = "access.static.meshes"
	MeshesVariable = "KUMA_ACCESS_STATIC_MESHES"
)

// settings names the settings that permit the action.
func (a Action) settings() string {
	users, groups := a.Variable("USERS"), a.Variable("GROUPS")
	if !a.description().OfMeshes {
		return users + " and " + groups
	}
	return users + ", " + groups + " and " + MeshesVariable
}

// IsView returns whether a read is in the audit log, since it shows protected data.
func (a Action) IsView() bool {
	switch a {
	case AdminResources, ViewConfigDump, ViewStats, ViewClusters:
		return true
	}
	return false
}
