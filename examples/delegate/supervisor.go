package main

import _ "embed"

// supervisor is the small program of host.Supervise. The file in the repository is empty: "make build" and the builds of
// releases replace it, and without them the delegate is its own supervisor.
//
//go:embed supervisor.bin
var supervisor []byte
