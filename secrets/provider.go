package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Provider fetches secrets from where they are kept. Implementations are safe
// for concurrent use and keep no values: what a task needs twice, its [Resolver]
// remembers (SPEC S1).
type Provider interface {
	// Fetch returns the value that a reference addresses. The reference's scheme
	// is the provider's name; the rest is as the provider's documentation says.
	// An error says why and never shows a value, a token or any other part of an
	// answer. A secret that is not there is [ErrNotFound].
	Fetch(ctx context.Context, ref *url.URL) (string, error)
}

// ProviderFunc is a function as a [Provider].
type ProviderFunc func(ctx context.Context, ref *url.URL) (string, error)

// Fetch calls f.
func (f ProviderFunc) Fetch(ctx context.Context, ref *url.URL) (string, error) { return f(ctx, ref) }

// Providers are providers by the scheme of the references that they serve, in
// lower case. Two Vaults are two schemes, such as "vault" and "vault-test".
type Providers map[string]Provider

// ErrNotFound means that there is no such secret, or no such field in it.
var ErrNotFound = errors.New("there is no such secret")

// Field takes one field out of a secret that is a document. An empty name means
// the whole text as it is. Otherwise the text is a JSON object, and the name a
// member of it; dots lead into members of members and elements of lists
// ("db.users.0.password"). A name that is there as a whole, dots included, goes
// before one that is taken apart.
//
// A string is its value; everything else is its JSON text, so that numbers keep
// all their digits. The errors name the field and show nothing of the text.
func Field(text, name string) (string, error) {
	if name == "" {
		return text, nil
	}
	if !json.Valid([]byte(text)) {
		return "", fmt.Errorf("the secret has no field %q: it is not JSON", name)
	}
	v, ok := descend(json.RawMessage(text), name)
	if !ok {
		return "", fmt.Errorf("%w: it has no field %q", ErrNotFound, name)
	}
	var s string
	switch {
	case string(v) == "null":
		return "", fmt.Errorf("%w: its field %q is null", ErrNotFound, name)
	case json.Unmarshal(v, &s) == nil:
		return s, nil
	default:
		return string(v), nil
	}
}

// descend finds a path in a valid JSON value.
func descend(v json.RawMessage, path string) (json.RawMessage, bool) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	member := func(name string) (json.RawMessage, bool) {
		if object != nil {
			m, ok := object[name]
			return m, ok
		}
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		return list[i], true
	}
	if json.Unmarshal(v, &object) != nil || object == nil {
		object = nil
		if json.Unmarshal(v, &list) != nil {
			return nil, false
		}
	}
	if m, ok := member(path); ok {
		return m, true
	}
	for i := range len(path) { // the longest name goes first, from the right
		dot := len(path) - 1 - i
		if path[dot] != '.' {
			continue
		}
		if m, ok := member(path[:dot]); ok {
			if found, ok := descend(m, path[dot+1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}

// ReferenceError says which reference could not be resolved, and why. Its text
// shows no secret that its task knows.
type ReferenceError struct {
	// Reference is what stands between "${{secrets." and "}}".
	Reference string
	// Err is the reason as the provider gave it.
	Err error

	text string
}

// Error is the reference and the reason.
func (e *ReferenceError) Error() string { return e.text }

// Unwrap gives access to the reason.
func (e *ReferenceError) Unwrap() error { return e.Err }

// parseReference reads a reference that is a URL.
func parseReference(name string) (*url.URL, error) {
	u, err := url.Parse(name)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL") // url.Parse quotes what it was given
	case u.User != nil:
		return nil, errors.New("a reference holds no user or password")
	}
	return u, nil
}

// isURL tells a reference to a provider from the id of a secret task.
func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && scheme != ""
}

// validValue refuses what is no secret value.
func validValue(v string) error {
	if len(v) > MaxValue {
		return fmt.Errorf("its value is larger than %d bytes", MaxValue)
	}
	return nil
}

// insertable refuses what would not survive in a JSON string.
func insertable(v string) error {
	if !utf8.ValidString(v) {
		return errors.New("its value is not UTF-8 text, so it can only be used with getAsBase64")
	}
	return nil
}
