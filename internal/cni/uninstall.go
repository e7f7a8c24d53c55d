package cni

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// DaemonSet is the DaemonSet that installs the plugin, as its Pods ask the API server about it.
type DaemonSet struct {
	Namespace, Name string
	// Server is HOST:PORT of the API server.
	Server string
	// Account is the folder with the token and the CA of the Pod (ca.crt).
	Account string
}

// InCluster returns the DaemonSet of a Pod, with the API server of its environment.
func InCluster(namespace, name string) *DaemonSet {
	return &DaemonSet{Namespace: namespace, Name: name,
		Server:  net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		Account: "/var/run/secrets/kubernetes.io/serviceaccount"}
}

// IsDeleted reports whether the DaemonSet was deleted, or is being deleted. A DaemonSet that may not be read any more
// is, with its ServiceAccount and roles. With an error it is not known.
func (d *DaemonSet) IsDeleted(ctx context.Context) (bool, error) {
	token, err := os.ReadFile(filepath.Join(d.Account, "token"))
	if err != nil {
		return false, err
	}
	ca, err := os.ReadFile(filepath.Join(d.Account, "ca.crt"))
	if err != nil {
		return false, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf(
		"https://%s/apis/apps/v1/namespaces/%s/daemonsets/%s", d.Server, d.Namespace, d.Name), nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true, nil
	case http.StatusOK:
		var stored struct {
			Metadata struct {
				DeletionTimestamp string `json:"deletionTimestamp"`
			} `json:"metadata"`
		}
		err := json.NewDecoder(response.Body).Decode(&stored)
		return stored.Metadata.DeletionTimestamp != "", err
	}
	return false, fmt.Errorf("the API server responds with %s", response.Status)
}
