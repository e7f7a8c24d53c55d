package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"weft/internal/access"
	"weft/resource"
)

// accessRules returns the two settings of each action: the users and the groups that are allowed it.
func accessRules() []setting {
	var settings []setting
	defaults := access.Defaults()
	for _, d := range access.Actions {
		fallback := defaults[d.Action]
		settings = append(settings, setting{
			path: d.Action.SettingPath("users"), env: d.Action.Variable("USERS"), list: true,
			fallback: strings.Join(fallback.Users, ","),
			doc:      fmt.Sprintf("Users with the permission to %s.", d.Doing),
			set:      rule(d.Action, func(r *access.Rule, names []string) { r.Users = names }),
		}, setting{
			path: d.Action.SettingPath("groups"), env: d.Action.Variable("GROUPS"), list: true,
			fallback: strings.Join(fallback.Groups, ","),
			doc:      fmt.Sprintf("Groups whose members have the permission to %s.", d.Doing),
			set:      rule(d.Action, func(r *access.Rule, names []string) { r.Groups = names }),
		})
	}
	return settings
}

// meshRules is the setting of the rules that are limited to meshes.
var meshRules = []setting{{
	path: access.MeshesSetting, env: access.MeshesVariable, document: true, fallback: "[]",
	doc: "Further rules, limited to meshes, as a list of " +
		"`{meshes: [NAME], actions: [ACTION], users: [NAME], groups: [NAME]}`, in the variable as JSON or YAML. Each " +
		"permits its users, and the members of its groups, the actions in these meshes, and nothing of global scope " +
		"([users](operations/users.md#users-of-some-meshes)).",
	set: func(s *Settings, v string) error {
		rules, err := parseMeshRules(v)
		if err != nil {
			return fmt.Errorf("is not a list of {meshes, actions, users, groups}: %w", err)
		}
		for i := range rules {
			setting := fmt.Sprintf("%s[%d]", access.MeshesSetting, i)
			if err := rules[i].check(); err != nil {
				return fmt.Errorf("is invalid: %s %w", setting, err)
			}
			for _, action := range rules[i].Actions {
				rule := s.Access[action]
				rule.Limited = append(rule.Limited, access.MeshRule{Setting: setting, Meshes: rules[i].Meshes,
					Users: rules[i].Users, Groups: rules[i].Groups})
				s.Access[action] = rule
			}
		}
		return nil
	},
}}

// parseMeshRules reads the setting. A name that YAML reads as another type, such as no, is an error: it would be
// another name, false.
func parseMeshRules(text string) (rules []meshRule, err error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&rules); err != nil {
		return nil, fmt.Errorf("%w; quote a name that YAML reads as another value", err)
	}
	return rules, nil
}

// meshRule is one item of the setting.
type meshRule struct {
	Meshes  []string        `json:"meshes"`
	Actions []access.Action `json:"actions"`
	Users   []string        `json:"users"`
	Groups  []string        `json:"groups"`
}

// check returns an error that continues a sentence about the rule.
func (r *meshRule) check() error {
	switch {
	case len(r.Meshes) == 0:
		return errors.New("names no mesh in `meshes`")
	case len(r.Actions) == 0:
		return errors.New("names no action in `actions`")
	case len(r.Users)+len(r.Groups) == 0:
		return errors.New("names neither users in `users` nor groups in `groups`")
	}
	for _, mesh := range r.Meshes {
		if problem := resource.MeshNameProblem(mesh); problem != "" {
			return fmt.Errorf("has a mesh that %s", problem)
		}
	}
	for _, name := range slices.Concat(r.Users, r.Groups) {
		if split := splitList(name); len(split) != 1 || split[0] != name {
			return fmt.Errorf("has the user or group %q, which is no name: no user or group has a comma, or a space "+
				"at an end", name)
		}
	}
	for _, action := range r.Actions {
		if !slices.Contains(limitedActions(), string(action)) {
			return fmt.Errorf("has the action %q, which cannot be limited to meshes; those that can are %s", action,
				strings.Join(limitedActions(), ", "))
		}
	}
	return nil
}

// limitedActions returns the actions that rules may limit to meshes.
func limitedActions() (names []string) {
	for _, d := range access.Actions {
		if d.OfMeshes {
			names = append(names, string(d.Action))
		}
	}
	return names
}

// checkMeshRules returns an error where a rule that is limited to meshes has no effect, since every user may do the
// same in every mesh. A preview is limited by the action read.
func (s *Settings) checkMeshRules() error {
	for _, d := range access.Actions {
		rule := s.Access[d.Action]
		everyone := slices.Contains(rule.Groups, access.AuthenticatedGroup) ||
			slices.Contains(rule.Groups, access.UnauthenticatedGroup)
		if everyone && len(rule.Limited) > 0 && d.Action != access.Preview {
			return fmt.Errorf("%s limits the action %s to meshes, and %s permits it to every user in every mesh; set "+
				"%s to those who may do so in every mesh, such as %s", rule.Limited[0].Setting, d.Action,
				d.Action.SettingPath("groups"), d.Action.Variable("GROUPS"), access.AdminGroup)
		}
	}
	return nil
}

// OperatorsUnset returns the variables of the operators if they are not set and those of the writers are, to another
// value than the default of both; else nil. Such settings may be of a release in which one action had both.
func (s *Settings) OperatorsUnset() []string {
	action := access.OperatorResources
	writers, operators := s.Access[access.Write], s.Access[action]
	if !s.isGiven(access.Write) || s.isGiven(action) || slices.Equal(writers.Users, operators.Users) &&
		slices.Equal(writers.Groups, operators.Groups) {
		return nil
	}
	return []string{action.Variable("USERS"), action.Variable("GROUPS")}
}

// isGiven reports whether the users or the groups of an action are set.
func (s *Settings) isGiven(action access.Action) bool {
	return slices.ContainsFunc(s.effective, func(v Value) bool {
		of := v.Path == action.SettingPath("users") || v.Path == action.SettingPath("groups")
		return of && v.Source != sourceDefault
	})
}

func rule(action access.Action, put func(*access.Rule, []string)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		r := s.Access[action]
		put(&r, splitList(v))
		s.Access[action] = r
		return nil
	}
}

// splitList parses "a, b"; an empty text is an empty list.
func splitList(text string) []string {
	var values []string
	for value := range strings.SplitSeq(text, ",") {
		if value = strings.TrimSpace(value); value != "" && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
