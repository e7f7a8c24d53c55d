package node

import (
	"context"
	_ "embed"
	"fmt"

	"weft/internal/image"
	"weft/internal/testwait"
)

// driverImage is the image of the program that stands for the SPIFFE CSI driver.
const driverImage = "weft-test/spiffe-csi-driver:latest"

//go:embed spiffe-csi.yaml
var driverManifest string

// StartSPIFFEDriver runs the driver of volumes "csi.spiffe.io" on all Nodes, until the end of the node. Its volumes are
// a folder of the Node.
func (n *Node) StartSPIFFEDriver(ctx context.Context, folder string) error {
	if err := n.addImage(image.Image{Name: driverImage, Entrypoint: []string{"/csi"},
		Files: map[string]image.File{"/csi": {Source: n.programs["csi-driver"]}}}); err != nil {
		return err
	}
	if err := n.Apply(ctx, fmt.Sprintf(driverManifest, folder)); err != nil {
		return err
	}
	_, err := n.Kubectl(ctx, "", "rollout", "status", "daemonset/spiffe-csi-driver", "-n", "spiffe-csi", "--timeout",
		testwait.Timeout.String())
	return err
}
