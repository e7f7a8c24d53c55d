// Package wire holds the contracts between weft's own programs, as generated from the .proto files
// beside this one. A field that was released keeps its number and meaning for ever; what a reader does
// not know it ignores.
package wire

//go:generate go run -C ../../tools ./genproto ../internal/wire/agent.proto
//go:generate go run -C ../../tools ./genproto ../internal/wire/zonesync.proto
//go:generate go run -C ../../tools ./genproto ../internal/wire/zonequery.proto
