package settings

import (
	"fmt"
	"strings"
)

// Markdown writes the documentation page of all settings.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Settings of the control plane

A flag of ` + "`weft cp run`" + ` wins over a variable, a variable over the file (` + "`--config-file`" + `, YAML), the file over the default.

An unknown key in the file ends the start with a message, and so does an unknown variable that begins with
` + "`KUMA_`" + `. Variables of the agent and of Kubernetes service links are left alone; settings of Kuma that
have no meaning here are answered with a warning in the log.

| key in the file | variable | default | meaning |
|---|---|---|---|
`)
	for _, s := range all {
		fallback := "(empty)"
		if s.fallback != "" {
			fallback = "`" + s.fallback + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.path, s.env, fallback, s.doc)
	}
	b.WriteString("\n## Settings of Kuma without effect\n\nA name that ends in `_` stands for all that begin so.\n\n| variable | why |\n|---|---|\n")
	for _, m := range meaningless {
		fmt.Fprintf(&b, "| `%s` | %s |\n", m.name, m.reason)
	}
	return b.String()
}
