package settings

import (
	"fmt"
	"strings"
)

// Reading is when the program reads a file, and so when a replaced file takes effect.
type Reading string

const (
	// EachConnection is at the beginning of each connection; open connections go on. A file that can't be read leaves
	// the former content in use.
	EachConnection Reading = "for each connection"
	// EachUse is at each request or write that needs the content.
	EachUse Reading = "at each use"
	// AtStart is at the start of the program: a replaced file takes effect with a restart.
	AtStart Reading = "at the start"
)

// File is what somebody may replace while the control plane runs: a file, or a value that names a credential.
type File struct {
	Setting string // its path in the settings
	Content string
	Read    Reading
}

// Files are all files and credentials of the settings.
var Files = []File{
	{"general.tlsCertFile", "certificate of the server for proxies", EachConnection},
	{"general.tlsKeyFile", "its private key", EachConnection},
	{"general.dataDir", "its own `server.crt` and `server.key`, where no certificate is set", EachConnection},
	{"apiServer.https.tlsCertFile", "certificate of the API", EachConnection},
	{"apiServer.https.tlsKeyFile", "its private key", EachConnection},
	{"apiServer.https.tlsCaFile", "CAs of users' certificates", EachConnection},
	{"apiServer.auth.clientCertsDir", "CAs of users' certificates", EachConnection},
	{"multizone.global.kds.tlsCertFile", "certificate of global's server for zones", EachConnection},
	{"multizone.global.kds.tlsKeyFile", "its private key", EachConnection},
	{"multizone.zone.kds.rootCaFile", "CAs of global's certificate", EachConnection},
	{"multizone.zone.kds.auth.cpTokenPath", "zone token", EachUse},
	{"multizone.zone.kds.auth.cpTokenInline", "zone token", AtStart},
	{"runtime.kubernetes.admissionServer.certDir", "certificate of the admission webhooks", EachConnection},
	{"runtime.kubernetes.admissionServer.clientCaFile", "CAs of the certificates of API servers", EachConnection},
	{"runtime.kubernetes.injector.caCertFile", "CA that is written into namespaces of proxies", EachUse},
	{"store.postgres.tls.caPath", "CAs of PostgreSQL's certificate", EachConnection},
	{"store.postgres.tls.certPath", "client certificate for PostgreSQL", EachConnection},
	{"store.postgres.tls.keyPath", "its private key", EachConnection},
	{"store.postgres.password", "password for PostgreSQL", AtStart},
	{"store.encryption.keyFile", "encryption key of Secrets", AtStart},
}

// FilesMarkdown returns the table of Files.
func FilesMarkdown() string {
	var b strings.Builder
	b.WriteString("| setting | content | read |\n|---|---|---|\n")
	for _, f := range Files {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Setting, f.Content, f.Read)
	}
	return b.String()
}
