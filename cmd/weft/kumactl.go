package main

import (
	"strings"

	"weft/kind"
)

// replaced are the commands of kumactl that weft lacks, with what to run in place of each.
var replaced = map[string]string{
	"generate public-key": "weft prints no public key: `weft generate signing-key` makes a key, and the control " +
		"plane verifies tokens with the key of its Secret (docs/operations/tokens.md).",
	"install demo":                        "Run `weft demo`, which shows a mesh on this machine without a cluster.",
	"install logging":                     observability,
	"install metrics":                     observability,
	"install observability":               observability,
	"install tracing":                     observability,
	"install transparent-proxy-validator": "Run `weft-dp validate transparent-proxy` in the Pod.",
	"uninstall ebpf":                      "Nothing is installed: weft redirects by iptables.",
	"uninstall transparent-proxy":         "Run `weft-dp uninstall transparent-proxy` on the machine.",
}

const observability = "weft installs no Prometheus and no Grafana. docs/operations/metrics.md has what yours can read."

// replacement returns what to run in place of a command of kumactl. It returns an empty text where none is named.
func replacement(args []string) string {
	var words []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			words = append(words, arg)
		}
	}
	if len(words) > 1 && words[0] == "inspect" {
		return inspection(words[1:])
	}
	return replaced[strings.Join(words[:min(len(words), 2)], " ")]
}

// inspection returns what to run in place of `kumactl inspect` of a kind that has no page of its own.
func inspection(words []string) string {
	d, err := kindOf(words[0])
	switch {
	case err != nil && kind.LackingKind(words[0]) != "":
		return err.Error()
	case err != nil:
		return ""
	case len(words) == 1:
		return "Run `weft get " + words[0] + "`."
	}
	return "Run `weft describe " + strings.ToLower(d.Describe().Name) + " " + words[1] + "`."
}
