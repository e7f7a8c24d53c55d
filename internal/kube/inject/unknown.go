package inject

import (
	"slices"
	"strings"

	"weft/internal/kube/convert"
	"weft/internal/kube/podmeta"
	"weft/internal/spelling"
)

// knownLabels are the labels of kuma.io that a Pod may have.
var knownLabels = []string{injectionLabel, meshLabel, zoneProxyLabel, workloadLabel}

// reportUnknown warns about annotations and labels of kuma.io that no release of this product knows: their author
// means a known one.
func (i *injection) reportUnknown() {
	for _, of := range []struct {
		what   string
		values map[string]string
		known  []string
	}{{"annotation", i.pod.Annotations, podmeta.Annotations}, {"label", i.pod.Labels, knownLabels}} {
		for _, key := range sortedKeys(of.values) {
			if !convert.OfKuma(key) || slices.Contains(of.known, key) || isMeaningless(key) {
				continue
			}
			hint := ""
			if name := nearest(key, of.known); name != "" {
				hint = "; do you mean " + name + "?"
			} else if of.what == "label" && slices.Contains(podmeta.Annotations, key) {
				hint = "; it is an annotation"
			} else if of.what == "annotation" && slices.Contains(knownLabels, key) {
				hint = "; it is a label"
			}
			i.warn("the %s %s is unknown, so it has no effect%s", of.what, key, hint)
		}
	}
}

// isMeaningless reports whether an annotation is one that has its own warning or denial.
func isMeaningless(key string) bool {
	if _, ok := replaced[key]; ok || key == injectionLabel {
		return true
	}
	for _, known := range withoutMeaning {
		prefix, all := strings.CutSuffix(known.name, "*")
		if key == known.name || all && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// nearest returns the known name that a misspelled one is most like; empty where none is like it. Names with another
// prefix are like each other where what follows is: users leave the part "traffic." out.
func nearest(name string, known []string) string {
	best, least := "", 4 // a quarter of a short name
	for _, candidate := range known {
		distance := spelling.Distance(name, candidate)
		if _, rest, _ := strings.Cut(name, "/"); strings.HasSuffix(candidate, "/"+rest) {
			distance = 1
		}
		if distance < least {
			best, least = candidate, distance
		}
	}
	return best
}
