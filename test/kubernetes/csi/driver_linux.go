// Command csi is a CSI driver whose inline volumes are the folder of a Node with the socket of the SPIFFE Workload API.
//
// In the tests it stands for the SPIFFE CSI driver (github.com/spiffe/spiffe-csi) and for the registrar beside it. It
// has their name and their sockets, and rejects the volumes that they reject. A volume is ephemeral and read-only, and
// shows what the folder has later, so an agent may be restarted. It reports no state of volumes.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "csi.spiffe.io"

func main() {
	folder := flag.String("workload-api-socket-dir", "", "the folder that volumes lead to")
	socket := flag.String("csi-socket-path", "", "the socket for the kubelet's calls")
	endpoint := flag.String("kubelet-registration-path", "", "the same socket, as the kubelet has it")
	registrar := flag.String("registration-socket-path", "", "the socket by which the kubelet finds the driver")
	node := flag.String("node-id", "", "the name of the Node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	server := grpc.NewServer()
	d := &driver{folder: *folder, node: *node}
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, &registered{endpoint: *endpoint})
	failed := make(chan error)
	for _, path := range []string{*socket, *registrar} { // the kubelet calls the driver once it finds the second
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a driver that was killed
			log.Fatal(err)
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			log.Fatal(err)
		}
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case err := <-failed:
		log.Fatal(err)
	case <-ctx.Done():
		server.Stop() // removes both sockets
	}
}

// registered are the kubelet's calls about the driver as a plugin.
type registered struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r *registered) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registered) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		log.Fatalf("the kubelet rejects the driver: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// driver has the calls of the Container Storage Interface, 1.9, that an inline volume needs.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	folder, node string
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "test"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume mounts the folder, once. The kubelet mounts it read-only into containers.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse,
	error) {
	mount := r.GetVolumeCapability().GetMount()
	switch {
	case r.TargetPath == "" || mount == nil || mount.FsType != "" || len(mount.MountFlags) > 0:
		return nil, status.Error(codes.InvalidArgument, "a volume is a mount with a path, and without flags and type")
	case !r.Readonly:
		return nil, status.Error(codes.InvalidArgument, "pod.spec.volumes[].csi.readOnly must be true")
	case r.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true":
		return nil, status.Error(codes.InvalidArgument, "only ephemeral volumes are supported")
	}
	err := os.Mkdir(r.TargetPath, 0o777)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil && !d.mounted(r.TargetPath) {
		err = syscall.Mount(d.folder, r.TargetPath, "", syscall.MS_BIND, "")
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "mounting at %s: %v", r.TargetPath, err)
	}
	log.Printf("mounted at %s", r.TargetPath)
	return &csi.NodePublishVolumeResponse{}, nil
}

// mounted returns whether a path is the folder.
func (d *driver) mounted(path string) bool {
	folder, err := os.Stat(d.folder)
	if err != nil {
		return false
	}
	at, err := os.Stat(path)
	return err == nil && os.SameFile(folder, at)
}

// NodeUnpublishVolume removes the mount, if it is there.
func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	err := syscall.Unmount(r.TargetPath, 0)
	if errors.Is(err, syscall.EINVAL) { // no mount
		err = nil
	}
	if err == nil {
		err = os.Remove(r.TargetPath)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "unmounting %s: %v", r.TargetPath, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
