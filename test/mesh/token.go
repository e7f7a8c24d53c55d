package mesh

import (
	"context"

	"weft/internal/client"
)

// tokenLife is the life of a token, which no test reaches.
const tokenLife = "24h"

// ZoneToken returns a token for the control plane of a zone. admin is an administrator of global.
func ZoneToken(ctx context.Context, admin *client.Client, zone string) (string, error) {
	var token []byte
	err := admin.Post(ctx, "/tokens/zone",
		map[string]any{"zone": zone, "scope": []string{"cp"}, "validFor": tokenLife}, &token)
	return string(token), err
}

// ProxyToken returns a token for every proxy of a mesh that has these roles, which commas separate. It vouches for no
// fact.
func ProxyToken(ctx context.Context, admin *client.Client, mesh, roles string) (string, error) {
	var token []byte
	err := admin.Post(ctx, "/tokens/dataplane",
		map[string]string{"mesh": mesh, "type": roles, "validFor": tokenLife}, &token)
	return string(token), err
}
