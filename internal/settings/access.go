package settings

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/access"
)

// accessRules are the two settings of every action: the users and the groups that may do it.
func accessRules() []setting {
	var settings []setting
	defaults := access.Defaults()
	for _, d := range access.Actions {
		fallback := defaults[d.Action]
		path := "access.static." + string(d.Action)
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

func rule(action access.Action, put func(*access.Rule, []string)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		r := s.Access[action]
		put(&r, splitList(v))
		s.Access[action] = r
		return nil
	}
}

// splitList reads "a, b"; an empty text is an empty list.
func splitList(text string) []string {
	var values []string
	for value := range strings.SplitSeq(text, ",") {
		if value = strings.TrimSpace(value); value != "" && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
