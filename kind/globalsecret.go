package kind

import "weft/resource"

// GlobalSecret is a value outside any mesh that only the control plane and administrators read. The keys that sign the
// tokens of users and of zones are GlobalSecrets with the names user-token-signing-key-ID and
// zone-token-signing-key-ID: deleting one makes the tokens that it signed invalid.
type GlobalSecret = Secret

// GlobalSecrets is the kind of [GlobalSecret].
var GlobalSecrets = &resource.Kind[GlobalSecret]{
	Info: resource.Info{
		Name: "GlobalSecret", Plural: "globalsecrets", Aliases: []string{"global-secrets"},
		Scope: resource.Global, Sync: resource.GlobalToZones, Flat: true, AdminOnly: true, Encrypted: true,
		WrittenBy: resource.Administrator,
		MaxBytes:  secretBytes,
	},
	Validate: validateSecret,
}
