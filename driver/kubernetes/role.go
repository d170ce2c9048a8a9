package kubernetes

import _ "embed"

// Role is a manifest with the permissions that the driver needs. All are in the namespace of
// its pods.
//
//go:embed role.yaml
var Role string
