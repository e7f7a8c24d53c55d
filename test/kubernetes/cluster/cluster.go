// Package cluster runs a kube-apiserver and its etcd. No kubelet and no controller runs.
package cluster

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"weft/internal/process"
	"weft/internal/testnet"
	"weft/internal/testwait"
)

// AdminToken authenticates a user of the group system:masters, which RBAC allows everything.
const AdminToken = "admin"

// ServiceRange has the addresses of Services.
const ServiceRange = "10.96.0.0/16"

// Options are the options of a server.
type Options struct {
	// Programs is the folder of kube-apiserver and etcd.
	Programs string
	// Dir is the folder of its files. The caller removes it after Close.
	Dir string
	// Address is the IP address at which clients find the API server, 127.0.0.1 by default. Another address also is
	// the endpoint of the Service kubernetes.
	Address string
	// Audit records the requests of service accounts, for [Server.Requests].
	Audit bool
	// Flags are further flags of the API server.
	Flags []string
}

// Server is a running API server.
type Server struct {
	Options
	etcd, api                *process.Process
	etcdPort, peerPort, port int
}

// Programs returns the folder of kube-apiserver and etcd, or an error where they are not built.
func Programs() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	build := filepath.Join(filepath.Dir(file), "..", "apiserver", "build")
	out, err := exec.Command(build, "--print").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", build, err)
	}
	dir := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("kube-apiserver is not built, `make apiserver` does so once, in about 8 minutes: %w", err)
	}
	return dir, nil
}

// Start starts etcd, then the API server. Another process may take a free port before the program does, so a program
// that ended at once is started again with other ports.
func Start(o Options) (*Server, error) {
	o.Address = cmp.Or(o.Address, "127.0.0.1")
	s := &Server{Options: o}
	err := s.writeFiles()
	if err == nil {
		err = retry(s.StartEtcd, &s.etcdPort, &s.peerPort)
	}
	if err == nil {
		err = retry(s.StartAPI, &s.port)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func retry(start func() error, ports ...*int) (err error) {
	for range 4 {
		free, portsErr := testnet.Ports(len(ports))
		if portsErr != nil {
			return portsErr
		}
		for i, port := range ports {
			*port = free[i]
		}
		if err = start(); err == nil {
			return nil
		}
	}
	return err
}

// Config returns the configuration of an administrator's client.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "https://" + net.JoinHostPort(s.Address, strconv.Itoa(s.port)), BearerToken: AdminToken,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.file("tls", "apiserver.crt")},
		QPS:             -1, // no limit of requests
	}
}

// ServiceAccountKey is the file with the key of service account tokens.
func (s *Server) ServiceAccountKey() string { return s.file("sa.key") }

func (s *Server) file(name ...string) string {
	return filepath.Join(append([]string{s.Dir}, name...)...)
}

// writeFiles writes the token of the administrator, the key of service account tokens, and the policy of the audit.
func (s *Server) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.ServiceAccountKey(), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600),
		os.WriteFile(s.file("audit.yaml"), []byte(auditPolicy), 0o600),
		os.WriteFile(s.file("tokens.csv"), []byte(AdminToken+`,admin,admin,"system:masters"`+"\n"), 0o600))
}

// StartEtcd starts etcd again, at the same ports and with its data.
func (s *Server) StartEtcd() (err error) {
	clients, peer := "http://127.0.0.1:"+strconv.Itoa(s.etcdPort), "http://127.0.0.1:"+strconv.Itoa(s.peerPort)
	s.etcd, err = s.start("etcd", "--data-dir", s.file("etcd"),
		"--unsafe-no-fsync", "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--log-level", "error")
	if err != nil {
		return err
	}
	return s.etcd.Ready(testwait.Timeout, clients+"/health", http.DefaultClient)
}

// StartAPI starts the API server again, at the same port.
func (s *Server) StartAPI() (err error) {
	reconciler := "none"
	if s.Address != "127.0.0.1" {
		reconciler = "lease"
	}
	flags := s.Flags
	if s.Audit {
		flags = append(s.auditFlags(), flags...)
	}
	s.api, err = s.start("kube-apiserver", append([]string{
		"--etcd-servers", "http://127.0.0.1:" + strconv.Itoa(s.etcdPort),
		"--bind-address", s.Address, "--advertise-address", s.Address, "--endpoint-reconciler-type", reconciler,
		"--secure-port", strconv.Itoa(s.port), "--cert-dir", s.file("tls"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", s.ServiceAccountKey(),
		"--service-account-signing-key-file", s.ServiceAccountKey(),
		"--service-cluster-ip-range", ServiceRange, "--authorization-mode", "RBAC",
		"--token-auth-file", s.file("tokens.csv"), "--shutdown-delay-duration", "0s"}, flags...)...)
	if err != nil {
		return err
	}
	config := s.Config()
	config.CAFile, config.Insecure = "", true // the server writes its certificate while it starts
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return s.api.Ready(testwait.Timeout, config.Host+"/readyz", client)
}

func (s *Server) start(name string, args ...string) (*process.Process, error) {
	return process.Start(s.Dir, name, append([]string{filepath.Join(s.Programs, name)}, args...)...)
}

// StopEtcd kills etcd, without which the API server responds with errors.
func (s *Server) StopEtcd() { s.etcd.Kill() }

// SaveEtcd copies the data of etcd as it is at one moment into a new folder.
func (s *Server) SaveEtcd(dir string) error {
	if err := s.etcd.Freeze(); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(dir, os.DirFS(s.file("etcd"))), s.etcd.Thaw())
}

// RestoreEtcd kills both programs and starts them again with the data of [Server.SaveEtcd]. The versions of objects go
// back, as after `etcdutl snapshot restore` without --bump-revision.
func (s *Server) RestoreEtcd(dir string) error {
	s.Close()
	if err := os.RemoveAll(s.file("etcd")); err != nil {
		return err
	}
	if err := os.CopyFS(s.file("etcd"), os.DirFS(dir)); err != nil {
		return err
	}
	if err := os.Chmod(s.file("etcd"), 0o700); err != nil {
		return err
	}
	if err := s.StartEtcd(); err != nil {
		return err
	}
	return s.StartAPI()
}

// FreezeAPI has the API server accept connections and respond to none until ThawAPI.
func (s *Server) FreezeAPI() error { return s.api.Freeze() }

// ThawAPI continues a frozen API server.
func (s *Server) ThawAPI() error { return s.api.Thaw() }

// StopAPI kills the API server. etcd keeps its data.
func (s *Server) StopAPI() { s.api.Kill() }

// Processes returns both programs.
func (s *Server) Processes() []*process.Process { return []*process.Process{s.etcd, s.api} }

// Close ends both programs, the API server first: without etcd it would not end.
func (s *Server) Close() {
	s.api.Kill()
	s.etcd.Kill()
}

// MachineAddress returns an IPv4 address of this machine at which the API server may call webhooks: an EndpointSlice
// has no address of the loopback interface.
func MachineAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String(), nil
		}
	}
	return "", fmt.Errorf("the machine has no IPv4 address that an EndpointSlice may have: %v", addresses)
}
