package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// separator is the text between the plugin before ours and ours.
const separator = ",\n    "

// entry is our plugin in a configuration.
type entry struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	// Replaces is the file with a single plugin that the configuration replaces; empty: none.
	Replaces string `json:"replaces,omitempty"`
}

func encoded(replaces string) []byte {
	text, err := json.Marshal(entry{Type: Type, Capabilities: map[string]bool{capability: true}, Replaces: replaces})
	if err != nil {
		panic(err) // texts and a boolean
	}
	return text
}

// network is the text of a network configuration, with the places of its plugins. Only our plugin is added and removed:
// all other text stays as it is.
type network struct {
	text    []byte
	list    bool // whether it is a list of plugins; else it is a single one
	open    int  // the offset after the bracket that opens the list
	plugins []plugin
}

type plugin struct {
	entry
	from, to int
}

// parse reads a network configuration (CNI specification, "Network configuration format"). An error says why a
// container runtime can't use it.
func parse(text []byte) (*network, error) {
	n := &network{text: text}
	var fields struct {
		CNIVersion  string   `json:"cniVersion"`
		CNIVersions []string `json:"cniVersions"`
		Name        string   `json:"name"`
		Type        string   `json:"type"`
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err == nil && key == "plugins" {
			err = n.readPlugins(decoder)
		} else if err == nil {
			err = decoder.Decode(new(json.RawMessage))
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case n.list && len(n.plugins) == 0:
		return nil, errors.New("it has no plugins")
	case !n.list && fields.Type == "":
		return nil, errors.New("it has neither plugins nor a type")
	case fields.Name == "":
		return nil, errors.New("it has no name")
	case len(fields.CNIVersions) == 0 && !slices.Contains(versions.SupportedVersions(), fields.CNIVersion):
		return nil, fmt.Errorf("its cniVersion is %q, want one of %q", fields.CNIVersion, versions.SupportedVersions())
	}
	return n, nil
}

func (n *network) readPlugins(decoder *json.Decoder) error {
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return errors.Join(err, errors.New("plugins is no list"))
	}
	n.list, n.open, n.plugins = true, int(decoder.InputOffset()), nil
	for decoder.More() {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		p := plugin{to: int(decoder.InputOffset())}
		p.from = p.to - len(raw)
		if err := json.Unmarshal(raw, &p.entry); err != nil {
			return err
		}
		n.plugins = append(n.plugins, p)
	}
	_, err := decoder.Token()
	return err
}

// ours returns the index of our plugin, or -1.
func (n *network) ours() int {
	for i, p := range n.plugins {
		if p.Type == Type {
			return i
		}
	}
	return -1
}

// chained reports whether our plugin is the last one, as this release writes it.
func (n *network) chained() bool {
	at := n.ours()
	return at > 0 && at == len(n.plugins)-1 &&
		bytes.Equal(n.text[n.plugins[at].from:n.plugins[at].to], encoded(n.plugins[at].Replaces))
}

// chain returns the text with our plugin as the last one. A file with a single plugin becomes a list.
func (n *network) chain(file string) ([]byte, error) {
	if !n.list {
		return n.convert(file)
	}
	replaces := ""
	if at := n.ours(); at >= 0 {
		replaces = n.plugins[at].Replaces
		without, err := n.unchain()
		if err != nil {
			return nil, err
		}
		if n, err = parse(without); err != nil {
			return nil, err
		}
	}
	last := n.plugins[len(n.plugins)-1].to
	return fmt.Appendf(nil, "%s%s%s%s", n.text[:last], separator, encoded(replaces), n.text[last:]), nil
}

// convert returns a list of the single plugin and ours, from which unconvert returns the same text.
func (n *network) convert(file string) ([]byte, error) {
	var head struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}
	if err := json.Unmarshal(n.text, &head); err != nil {
		return nil, err
	}
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s,\"plugins\":[%s%s%s]}\n", text[:len(text)-1], n.text, separator, encoded(file)), nil
}

// unconvert returns the file that a list of the plugins replaces, and its text; an empty name where it replaces none.
func (n *network) unconvert() (file string, text []byte) {
	at := n.ours()
	if at != 1 || n.plugins[at].Replaces == "" {
		return "", nil
	}
	return n.plugins[at].Replaces, bytes.TrimSuffix(n.text[n.open:n.plugins[at].from], []byte(separator))
}

// unchain returns the text without our plugin.
func (n *network) unchain() ([]byte, error) {
	at := n.ours()
	switch {
	case at < 0:
		return n.text, nil
	case len(n.plugins) == 1:
		return nil, errors.New("it has no other plugin")
	case at == 0:
		return join(n.text[:n.plugins[0].from], n.text[n.plugins[1].from:]), nil
	}
	return join(n.text[:n.plugins[at-1].to], n.text[n.plugins[at].to:]), nil
}

func join(a, b []byte) []byte { return append(bytes.Clone(a), b...) }
