// Package examples holds YAML to copy. The binary carries it, so that `weft demo` runs anywhere, and
// every file is checked by a test against the kinds that it uses.
package examples

import "embed"

// Demo is the mesh of `weft demo`: mesh/ is applied to the control plane, dataplanes/ has one file for
// each proxy, which the proxy registers itself.
//
//go:embed demo
var Demo embed.FS
