// Package wire has the protocols between weft's own programs, generated from the .proto files of this directory. A
// released field keeps its number and meaning for ever, and a reader ignores unknown fields.
package wire

//go:generate go run -C ../../tools ./genproto ../internal/wire/agent.proto
//go:generate go run -C ../../tools ./genproto ../internal/wire/zonesync.proto
//go:generate go run -C ../../tools ./genproto ../internal/wire/zonequery.proto
