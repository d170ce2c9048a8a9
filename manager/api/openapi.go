package api

import (
	_ "embed"
	"slices"
)

//go:generate go test -run ^TestTheDescriptionIsCurrent$ . -update

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description of the API in the form OpenAPI 3.1, as JSON. It covers the calls of the manager, of the
// pipeline service and of the log service, but not the protocols of delegates, which docs/protocol.md describes. It is
// made from the types of this package; tests compare it with the handlers.
func OpenAPI() []byte { return slices.Clone(openAPI) }
