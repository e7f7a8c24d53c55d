package settings

import (
	"fmt"
	"strings"
)

// Markdown returns the documentation page of all settings.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Settings of the control plane

A flag of ` + "`weft cp run`" + ` takes precedence over a variable. A variable takes precedence over the file
(` + "`--config-file`" + `, YAML), and the file over the default.

An unknown key in the file is an error at the start, and so is an unknown variable with the prefix
` + "`KUMA_`" + `. Variables of the agent and of Kubernetes service links are ignored. Settings of Kuma that
have no meaning here produce a warning in the log, as variables and as keys of the file. The file with the
defaults of Kuma 2.14 starts weft.

| key in the file | variable | default | meaning |
|---|---|---|---|
`)
	for _, s := range all {
		fallback := "(empty)"
		if s.fallback != "" {
			fallback = "`" + s.fallback + "`"
		}
		env := "`" + s.env + "`"
		if s.alias != "" {
			env += ", `" + s.alias + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.path, env, fallback, s.doc)
	}
	b.WriteString("\n## Values of Kuma that are rejected\n\nThey protect something in Kuma and would have no effect " +
		"here.\n\n| variable | value | instead |\n|---|---|---|\n")
	for _, r := range rejectedSettings {
		fmt.Fprintf(&b, "| `%s` | `%t` | %s |\n", r.name, r.value, r.help)
	}
	b.WriteString("\n## Settings of Kuma without effect\n\nA name that ends in `_` stands for all variables with " +
		"this prefix. A key of the file has the reason of its variable: `xdsServer.nackBackoff` is " +
		"`KUMA_XDS_SERVER_NACK_BACKOFF`.\n\n| variable | reason |\n|---|---|\n")
	for _, m := range ignoredSettings {
		fmt.Fprintf(&b, "| `%s` | %s |\n", m.name, m.reason)
	}
	return b.String()
}
