package secrets

import (
	"context"
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/secrets/internal/secrettask"
)

// Secret is the answer of a secret task (docs/protocol.md, section 2).
type Secret struct {
	ID    string `json:"id"`
	Value string `json:"value"`
}

// String returns the id of the secret, not the value.
func (s Secret) String() string { return fmt.Sprintf("secrets.Secret(%s)", s.ID) }

// GoString returns the same text as String. The verb %#v uses it.
func (s Secret) GoString() string { return s.String() }

// StaticHandler returns the handler for tasks of type "secret/static"
// (task.TypeSecretStatic). Their data has the form that other runners use:
//
//	{"secrets": [{"id": "...", "value": "...", "base64": false}]}
//
// If base64 is true, the handler decodes the value. The list must have exactly one
// element, because the answer has one value.
func StaticHandler() http.Handler {
	return secrettask.Handle(func(_ context.Context, in struct {
		Secrets []struct {
			Secret
			Base64 bool `json:"base64"`
		} `json:"secrets"`
	}) (Secret, error) {
		if len(in.Secrets) != 1 {
			return Secret{}, fmt.Errorf("a static secret task must have one secret, this one has %d", len(in.Secrets))
		}
		s := in.Secrets[0]
		v, err := secrettask.DecodeValue(s.Base64, s.Value)
		return Secret{ID: s.ID, Value: v}, err
	})
}
