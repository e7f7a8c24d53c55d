package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"weft/internal/adminsocket"
	"weft/internal/client"
	"weft/internal/kube/reach"
)

// defaultAddress is the address of a control plane on this machine.
const defaultAddress = "http://127.0.0.1:5681"

// contexts is the content of the contexts file: named control planes.
type contexts struct {
	Current       string         `json:"currentContext,omitempty"`
	ControlPlanes []controlPlane `json:"controlPlanes,omitempty"`
}

// controlPlane has the address of a control plane, and the user's credentials for it.
type controlPlane struct {
	Name           string `json:"name"`
	Address        string `json:"address"`
	CACertFile     string `json:"caCertFile,omitempty"`
	ClientCertFile string `json:"clientCertFile,omitempty"`
	ClientKeyFile  string `json:"clientKeyFile,omitempty"`
	SkipVerify     bool   `json:"skipVerify,omitempty"`
	Token          string `json:"token,omitempty"`
}

func (p *controlPlane) options() client.Options {
	return client.Options{
		Address: p.Address, Token: p.Token, CAFile: p.CACertFile,
		CertFile: p.ClientCertFile, KeyFile: p.ClientKeyFile, SkipVerify: p.SkipVerify,
	}
}

// contextsFile is $WEFT_CONFIG, else .weft/config in the user's home.
func contextsFile() (string, error) {
	if file := os.Getenv("WEFT_CONFIG"); file != "" {
		return file, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the contexts; name their file with WEFT_CONFIG: %w", err)
	}
	return filepath.Join(home, ".weft", "config"), nil
}

// socketLinks returns the directory of the links to the administrator's sockets of this user's control planes.
func socketLinks() (string, error) {
	file, err := contextsFile()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(file), "local"), nil
}

// loadContexts returns an empty list if there is no file.
func loadContexts() (*contexts, error) {
	c := &contexts{}
	file, err := contextsFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// save replaces the file with mode 0600, since it has tokens.
func (c *contexts) save() error {
	file, err := contextsFile()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return writePrivate(file, text)
}

// writePrivate writes a file with mode 0600. It never leaves an incomplete file.
func writePrivate(file string, text []byte) error {
	whole, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(whole.Name()) // it exists only if the rename failed
	_, err = whole.Write(text)
	if err := errors.Join(err, whole.Close()); err != nil {
		return err
	}
	return os.Rename(whole.Name(), file)
}

// find returns the control plane with a name; the error lists the known names.
func (c *contexts) find(name string) (*controlPlane, error) {
	if i := c.index(name); i >= 0 {
		return &c.ControlPlanes[i], nil
	}
	if len(c.ControlPlanes) == 0 {
		return nil, fmt.Errorf("there is no control plane %q; add it with `weft config control-planes add`", name)
	}
	return nil, fmt.Errorf("there is no control plane %q, only %s", name, someOf(c.names()))
}

func (c *contexts) index(name string) int {
	return slices.IndexFunc(c.ControlPlanes, func(p controlPlane) bool { return p.Name == name })
}

func (c *contexts) names() []string {
	var names []string
	for _, p := range c.ControlPlanes {
		names = append(names, p.Name)
	}
	return names
}

// options returns how the control plane is reached: flags have priority over variables, and both over the current
// context. If none of them has credentials, and the control plane is this user's own, its administrator's socket is
// used.
func (r *remote) options(ctx context.Context) (client.Options, error) {
	o, err := r.chosen()
	if err != nil {
		return o, err
	}
	return reached(ctx, o)
}

// reached returns how the address of the options is reached: a control plane in a Kubernetes cluster through the API
// server, until ctx ends, and one of this user through its administrator's socket.
func reached(ctx context.Context, o client.Options) (client.Options, error) {
	address, ok := reach.Parse(o.Address)
	if !ok {
		return throughSocket(o), nil
	}
	plane, err := reach.Open(ctx, address)
	if err != nil {
		return o, err
	}
	if o.Address = plane.URL; o.Token == "" && o.CertFile == "" {
		o.Token, err = plane.AdminToken(ctx)
	}
	return o, err
}

// throughSocket returns the administrator's socket of the control plane at the address, if there is one and the options
// have no credentials.
func throughSocket(o client.Options) client.Options {
	if o.Token != "" || o.CertFile != "" {
		return o
	}
	folder, err := socketLinks()
	if err != nil {
		return o // without a home directory there is none
	}
	if socket := adminsocket.Find(folder, o.Address); socket != "" {
		return client.Options{Address: client.UnixScheme + socket}
	}
	return o
}

func (r *remote) chosen() (client.Options, error) {
	address, name := r.api, r.context
	switch {
	case address != "" && name != "":
		return client.Options{}, errors.New("--api and --context both say which control plane; leave one out")
	case address == "" && name == "":
		address, name = os.Getenv("WEFT_API"), os.Getenv("WEFT_CONTEXT")
	}
	if address != "" {
		return client.Options{Address: address}, nil
	}
	known, err := loadContexts()
	if err != nil {
		return client.Options{}, err
	}
	if name == "" {
		name = known.Current
	}
	if name == "" {
		return client.Options{Address: defaultAddress}, nil
	}
	plane, err := known.find(name)
	if err != nil {
		return client.Options{}, err
	}
	return plane.options(), nil
}
