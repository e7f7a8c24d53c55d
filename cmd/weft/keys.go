package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weft/internal/pki"
	"weft/resource"
)

func newSigningKeyCommand(r *remote) *cobra.Command {
	var tokens, kid string
	command := &cobra.Command{
		Use:   "signing-key --for TOKENS --kid N",
		Short: "Print a new key that signs tokens, as the Secret that a control plane looks for",
		Long: `Print a new key that signs tokens, as the Secret (for users and zones a GlobalSecret) that a control plane
looks for. Tokens are signed with the key of the highest number; those that older keys signed stay good
until their Secrets are deleted.

With -o pem it is the private key alone, for --signing-key-path.`,
		Example: `  weft generate signing-key --for dataplanes --kid 2 | weft apply -f -
  weft generate signing-key --for users --kid 1 -o pem > users.pem`,
		Args: cobra.NoArgs,
	}
	o := outputFlag(command, asYAML, asJSON, asPEM)
	command.Flags().StringVar(&tokens, "for", "", "dataplanes (of --mesh), users or zones")
	command.Flags().StringVar(&kid, "kid", "", "number of the key: one more than the highest that there is")
	_ = command.MarkFlagRequired("for") // both exist
	_ = command.MarkFlagRequired("kid")
	completeFlag(command, "for", cobra.FixedCompletions([]string{"dataplanes", "users", "zones"},
		cobra.ShellCompDirectiveNoFileComp))
	command.RunE = func(command *cobra.Command, _ []string) error {
		realm, err := r.realm(tokens)
		if err != nil {
			return err
		}
		secret := realm.SigningKey(kid)
		if _, err := strconv.ParseUint(kid, 10, 32); err != nil {
			return fmt.Errorf("--kid %q is not a number from 1", kid)
		}
		if _, _, ok := pki.SigningKeyOf(secret); !ok {
			return fmt.Errorf("--kid %q is not a number from 1", kid)
		}
		key, err := pki.NewSigningKey()
		if err != nil {
			return err
		}
		if o.form == asPEM {
			_, err := command.OutOrStdout().Write(key)
			return err
		}
		return printValue(command.OutOrStdout(), secretOf(secret, key), o.form)
	}
	return command
}

// realm returns the realm of a kind of tokens.
func (r *remote) realm(tokens string) (pki.Realm, error) {
	switch tokens {
	case "dataplanes":
		return pki.DataplaneRealm(r.mesh), nil
	case "users":
		return pki.UserRealm, nil
	case "zones":
		return pki.ZoneRealm, nil
	}
	return pki.Realm{}, fmt.Errorf("--for %q is none of dataplanes, users, zones", tokens)
}

// secretDocument is a Secret or GlobalSecret in the form of `weft apply`.
type secretDocument struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
	Data string `json:"data"`
}

func secretOf(key resource.Key, data []byte) secretDocument {
	return secretDocument{key.Kind, key.Mesh, key.Name, base64.StdEncoding.EncodeToString(data)}
}

// tlsFiles are the files of a certificate, its key, and the CA that signs it.
type tlsFiles struct{ cert, key, caCert, caKey string }

func newTLSCertificateCommand() *cobra.Command {
	var what pki.TLSCertificate
	var files tlsFiles
	var purpose, validFor string
	command := &cobra.Command{
		Use:   "tls-certificate --type server|client",
		Short: "Write a certificate for the control plane's ports, or for a user of its API",
		Long: `Write a certificate and its private key: of the type server for the ports of a control plane, of the type
client for a user of its API, with the name of --name and the groups of --group. The CA of --ca-cert-file and
--ca-key-file signs it; without a CA it is self-signed. Existing files are not replaced.`,
		Example: `  weft generate tls-certificate --type server --hostname cp.example.com --hostname 10.0.0.1 --cert-file cp.crt --key-file cp.key
  weft generate tls-certificate --type client --name ann --group ops --ca-cert-file ca.crt --ca-key-file ca.key --cert-file ann.crt --key-file ann.key`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			lifetime, err := resource.ParseDuration(validFor)
			switch {
			case err != nil || lifetime <= 0:
				return fmt.Errorf("--valid-for %q is not a duration such as 30d", validFor)
			case purpose == "server" && (len(what.Hosts) == 0 || what.User != ""):
				return errors.New("a server's certificate needs --hostname, and has no --name")
			case purpose == "client" && (what.User == "" || len(what.Hosts) > 0):
				return errors.New("a client's certificate needs --name, and has no --hostname")
			case purpose != "server" && purpose != "client":
				return fmt.Errorf("--type %q is neither server nor client", purpose)
			}
			what.Lifetime, what.Now = lifetime, time.Now()
			return files.write(command, what)
		},
	}
	flags := command.Flags()
	flags.StringVar(&purpose, "type", "", "server or client")
	flags.StringArrayVar(&what.Hosts, "hostname", nil, "name or address of the server; may be given several times")
	flags.StringVar(&what.User, "name", "", "name of the user")
	flags.StringArrayVar(&what.Groups, "group", nil, "group of the user; may be given several times")
	flags.StringVar(&validFor, "valid-for", "365d", "how long it is valid, such as 30d")
	flags.StringVar(&files.cert, "cert-file", "cert.pem", "file of the certificate")
	flags.StringVar(&files.key, "key-file", "key.pem", "file of the private key, which its owner alone may read")
	flags.StringVar(&files.caCert, "ca-cert-file", "", "certificate of the CA (PEM)")
	flags.StringVar(&files.caKey, "ca-key-file", "", "private key of the CA (PEM)")
	command.MarkFlagsRequiredTogether("ca-cert-file", "ca-key-file")
	_ = command.MarkFlagRequired("type") // it exists
	return command
}

func (f *tlsFiles) write(command *cobra.Command, what pki.TLSCertificate) error {
	ca, err := f.authority()
	if err != nil {
		return err
	}
	for _, file := range []string{f.cert, f.key} {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there already; remove it, or name another with --cert-file and --key-file", file)
		}
	}
	cert, key, err := pki.NewTLSCertificate(ca, what)
	if err != nil {
		return err
	}
	if err := writePrivate(f.key, key); err != nil {
		return err
	}
	if err := os.WriteFile(f.cert, cert, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "wrote %s and %s\n", f.cert, f.key)
	return err
}

// authority reads the CA; nil if none is given.
func (f *tlsFiles) authority() (*pki.CA, error) {
	if f.caCert == "" {
		return nil, nil
	}
	cert, err := os.ReadFile(f.caCert)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(f.caKey)
	if err != nil {
		return nil, err
	}
	return pki.ParseCA(append(append(cert, '\n'), key...))
}
