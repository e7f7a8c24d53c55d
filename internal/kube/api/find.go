package api

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Server is an API server, and where its address and the credentials were found.
type Server struct {
	Config *rest.Config
	Source string
}

// Find returns the API server of this process: in a Pod that of its service account, else that of the kubeconfig, by
// the rules of client-go: the files of KUBECONFIG, or ~/.kube/config.
func Find() (Server, error) {
	config, err := rest.InClusterConfig()
	switch {
	case err == nil:
		return Server{config, "the service account of the Pod"}, nil
	case !errors.Is(err, rest.ErrNotInCluster):
		return Server{}, fmt.Errorf("the service account of the Pod can't be read: %w; set "+
			"automountServiceAccountToken of the Pod to true", err)
	}
	return FindContext("")
}

// FindContext returns the API server of a context of the kubeconfig; of the current one for an empty name.
func FindContext(name string) (Server, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	files := slices.DeleteFunc(rules.GetLoadingPrecedence(), func(file string) bool {
		_, err := os.Stat(file)
		return err != nil
	})
	if len(files) == 0 {
		return Server{}, fmt.Errorf("no API server of Kubernetes is known: this is no Pod with a service account, and "+
			"there is no kubeconfig at %s; name one with KUBECONFIG", strings.Join(rules.GetLoadingPrecedence(), ", "))
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: name})
	source := "the kubeconfig " + strings.Join(files, ", ")
	config, err := loader.ClientConfig()
	if err != nil {
		return Server{}, fmt.Errorf("%s: %w", source, err)
	}
	if raw, err := loader.RawConfig(); err == nil && cmp.Or(name, raw.CurrentContext) != "" {
		source += ", context " + cmp.Or(name, raw.CurrentContext)
	}
	return Server{config, source}, nil
}
