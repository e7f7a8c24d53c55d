package kind

import "weft/resource"

// GlobalSecrets is the kind of a [Secret] that belongs to no mesh.
var GlobalSecrets = &resource.Kind[Secret]{
	Info: resource.Info{
		Name: "GlobalSecret", Plural: "globalsecrets", Aliases: []string{"global-secrets"},
		Scope: resource.Global, Flat: true, AdminOnly: true, Encrypted: true,
	},
	Validate: validateSecret,
}
