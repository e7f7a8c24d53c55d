// Package deploy has the Helm chart of weft. `helm install` and `weft install control-plane` render the same templates.
package deploy

import "embed"

// Chart is the chart without its definitions (crds), which package crd generates.
//
//go:embed chart/Chart.yaml chart/values.yaml chart/files all:chart/templates
var Chart embed.FS
