package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weft/internal/kube/convert"
	"weft/internal/kube/injector"
	"weft/internal/settings"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// injector returns the webhook that adds sidecars to Pods. Sidecars connect to the control plane's Service.
func (s *Server) injector() *injector.Config {
	system := s.settings.Kubernetes.SystemNamespace
	find := func(key resource.Key) (resource.Any, bool) {
		return s.state.Tables.Find(table.Eval(s.state.Tables.DB.Snapshot()), key)
	}
	return &injector.Config{
		API: s.apiServer.client, Settings: &s.settings.Injector, System: system,
		DefaultMesh:  s.settings.DefaultMesh,
		ControlPlane: fmt.Sprintf("https://%s:%d", serviceHost(s.settings), s.settings.DataPlane.Port),
		HasMesh: func(mesh string) bool {
			_, exists := find(kind.Meshes.Key("", mesh))
			return exists
		},
		NotAdmitted: s.notAdmittedPod,
		Patch: func(name string) *kind.ContainerPatch {
			found, exists := find(kind.ContainerPatches.Key("", name+"."+system))
			if !exists {
				return nil
			}
			return &found.(*resource.Object[kind.ContainerPatch]).Spec
		},
	}
}

// notAdmittedPod returns why a mesh admits no such Pod, whatever Services will select it, or "".
func (s *Server) notAdmittedPod(mesh string, pod *convert.Pod, namespace *convert.Namespace) string {
	tables := s.state.Tables
	found, exists := tables.Meshes.Find(table.Eval(tables.DB.Snapshot()), "", mesh)
	if !exists {
		return ""
	}
	labels := s.pods.derived.Settings.Labels(pod, &convert.Around{Namespace: namespace})
	return found.Spec.DataplaneProxyMembership.NotAdmittedEarly(mesh, "the Pod "+pod.Namespace+"/"+pod.Name, labels,
		tables.Zone)
}

// serviceHost returns the host name of the control plane's Service.
func serviceHost(s *settings.Settings) string {
	return s.Injector.Service + "." + s.Kubernetes.SystemNamespace + ".svc"
}

// keepCA writes the CA of the server for proxies into the namespaces of proxies, on the leading replica.
func (s *Server) keepCA(ctx context.Context) {
	file := s.settings.Injector.CACertFile
	if file == "" {
		file = filepath.Join(s.settings.DataDir, "ca.crt")
	}
	read := func() ([]byte, error) { return os.ReadFile(file) }
	for ctx.Err() == nil {
		unchanged, stop := context.WithCancel(ctx)
		go func() { defer stop(); awaitChange(unchanged, read, caInterval) }()
		injector.KeepCA(unchanged, s.apiServer.client, s.settings.Kubernetes.SystemNamespace, read, s.apiServer.outage)
		stop()
	}
}

// caInterval is the time between two readings of the CA that is written into namespaces.
const caInterval = 10 * time.Second

// awaitChange returns once a file has another content than now, or ctx ends. A file that can't be read has not changed.
func awaitChange(ctx context.Context, read func() ([]byte, error), interval time.Duration) {
	first, err := read()
	for wait.Sleep(ctx, interval) == nil {
		now, failed := read()
		if failed == nil && (err != nil || !bytes.Equal(first, now)) {
			return
		}
	}
}

// checkCA returns an error for a certificate whose CA is not known.
func checkCA(s *settings.Settings) error {
	if s.TLSCertFile != "" && s.Injector.CACertFile == "" {
		return errors.New("general.tlsCertFile is set, and runtime.kubernetes.injector.caCertFile is not: set it to " +
			"the CA of this certificate, which sidecars verify")
	}
	return nil
}
