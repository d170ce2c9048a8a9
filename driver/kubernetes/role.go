package kubernetes

import _ "embed"

// Role is a manifest of the permissions that the driver needs, all of them in the
// namespace of its pods.
//
//go:embed role.yaml
var Role string
