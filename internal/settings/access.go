package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weft/internal/access"
)

// accessRules returns the two settings of each action: the users and the groups that are allowed it.
func accessRules() []setting {
	var settings []setting
	defaults := access.Defaults()
	for _, d := range access.Actions {
		fallback := defaults[d.Action]
		path := pathOf(d.Action)
		settings = append(settings, setting{
			path: path + ".users", env: d.Action.Variable("USERS"), list: true,
			fallback: strings.Join(fallback.Users, ","),
			doc:      fmt.Sprintf("Users with the permission to %s.", d.Doing),
			set:      rule(d.Action, func(r *access.Rule, names []string) { r.Users = names }),
		}, setting{
			path: path + ".groups", env: d.Action.Variable("GROUPS"), list: true,
			fallback: strings.Join(fallback.Groups, ","),
			doc:      fmt.Sprintf("Groups whose members have the permission to %s.", d.Doing),
			set:      rule(d.Action, func(r *access.Rule, names []string) { r.Groups = names }),
		})
	}
	return settings
}

// pathOf returns the path of the two settings of an action.
func pathOf(action access.Action) string { return "access.static." + string(action) }

// OperatorsUnset returns the variables of the operators if they are not set and those of the writers are, to another
// value than the default of both; else nil. Such settings may be of a release in which one action had both.
func (s *Settings) OperatorsUnset() []string {
	action := access.OperatorResources
	if !s.isGiven(access.Write) || s.isGiven(action) || reflect.DeepEqual(s.Access[access.Write], s.Access[action]) {
		return nil
	}
	return []string{action.Variable("USERS"), action.Variable("GROUPS")}
}

// isGiven reports whether the users or the groups of an action are set.
func (s *Settings) isGiven(action access.Action) bool {
	return slices.ContainsFunc(s.effective, func(v Value) bool {
		return strings.HasPrefix(v.Path, pathOf(action)+".") && v.Source != sourceDefault
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
