package kind

import (
	"fmt"
	"strings"
)

// CanarySelector is the label of a policy that applies to some of the proxies which its targetRef selects: those with
// all labels of its value, such as "version=v2,team=web". It narrows the targetRef and never widens it.
const CanarySelector = "weft.io/canary-selector"

// maxCanary is the number of bytes of a canary selector.
const maxCanary = 1024

// ParseCanarySelector returns the labels of a canary selector.
func ParseCanarySelector(text string) (map[string]string, error) {
	if len(text) > maxCanary {
		return nil, fmt.Errorf("has %d bytes, at most %d are read", len(text), maxCanary)
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		switch _, twice := labels[name]; {
		case !ok, !isLabelName(name), len(value) > maxLabel, value != "" && !labelName.MatchString(value):
			return nil, fmt.Errorf("%s is not a list of labels such as version=v2,team=web", quote(text))
		case twice:
			return nil, fmt.Errorf("%s has the label %s twice", quote(text), name)
		}
		labels[name] = value
	}
	return labels, nil
}

// CanaryOf returns the labels that a proxy must have for a policy with these labels to apply; nil: any.
func CanaryOf(labels map[string]string) map[string]string {
	text, ok := labels[CanarySelector]
	if !ok {
		return nil
	}
	selector, err := ParseCanarySelector(text)
	if err != nil {
		return map[string]string{CanarySelector: text} // no proxy has it: what cannot be read selects none
	}
	return selector
}
