package check

import (
	"strings"

	"weft/kind"
	"weft/resource"
)

// operatorsUnset reports settings of a release in which the action write had the resources of operators too.
func (l *controlChecker) operatorsUnset() {
	if len(l.OperatorsUnset) == 0 {
		return
	}
	var kinds []string
	for _, d := range kind.Written() {
		if info := d.Describe(); info.WrittenBy == resource.Operator {
			kinds = append(kinds, info.Name)
		}
	}
	l.found(operatorsUnset, controlPlane, "the settings permit further users to write, and do not set %s: these users "+
		"vouch for no Dataplane, and do not write the kinds %s", strings.Join(l.OperatorsUnset, " or "),
		strings.Join(kinds, ", "))
}
