// Package examples contains YAML to copy. The binary embeds it for `weft demo`, and a test validates every file.
package examples

import "embed"

// Demo is the mesh of `weft demo`: mesh/ is applied to the global control plane, ZONE/services.yaml to the control
// plane of a zone, and ZONE/dataplanes/ has one file for each proxy, which the proxy registers.
//
//go:embed demo
var Demo embed.FS
