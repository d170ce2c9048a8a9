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

// Provider fetches secrets from a store. Implementations must be safe for concurrent
// use and must not cache values: the [Resolver] of a task does (rule S1).
type Provider interface {
	// Fetch returns the value for a reference. The scheme of ref selects the
	// provider; the provider defines the rest of the URL. If the secret does not
	// exist, the error wraps [ErrNotFound]. Errors must not contain a value, a token
	// or any other part of the store's answer.
	Fetch(ctx context.Context, ref *url.URL) (string, error)
}

// ProviderFunc is a function that implements [Provider].
type ProviderFunc func(ctx context.Context, ref *url.URL) (string, error)

// Fetch calls f.
func (f ProviderFunc) Fetch(ctx context.Context, ref *url.URL) (string, error) { return f(ctx, ref) }

// Providers maps URL schemes to providers. A scheme is in lower case. Two servers of
// the same kind need two schemes, such as "vault" and "vault-test".
type Providers map[string]Provider

// ErrNotFound means that a secret, or a field of it, does not exist.
var ErrNotFound = errors.New("there is no such secret")

// Field returns one field of a secret. If name is empty, Field returns text itself.
// Otherwise text must be a JSON object. The name is a member of it; dots separate
// members of nested objects and indexes of lists ("db.users.0.password"). If a
// member's name contains dots, the longest matching name counts.
//
// For a string, Field returns its value. For any other value it returns the JSON
// text, so that a number keeps all its digits. An error names the field and shows no
// part of text. If the field does not exist or is null, the error wraps [ErrNotFound].
func Field(text, name string) (string, error) {
	if name == "" {
		return text, nil
	}
	if !json.Valid([]byte(text)) {
		return "", fmt.Errorf("the secret has no field %q: it is not JSON", name)
	}
	v, ok := findPath(json.RawMessage(text), name)
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

// findPath returns the value at a path in a valid JSON value.
func findPath(v json.RawMessage, path string) (json.RawMessage, bool) {
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
	for i := range len(path) { // from the right: the longest name first
		dot := len(path) - 1 - i
		if path[dot] != '.' {
			continue
		}
		if m, ok := member(path[:dot]); ok {
			if found, ok := findPath(m, path[dot+1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}

// unresolvedError is the error for a reference that cannot be resolved.
type unresolvedError struct {
	text string // with the masked reason; shows no known secret of the task
	err  error  // the reason, not masked
}

func (e *unresolvedError) Error() string { return e.text }

// Unwrap returns the reason.
func (e *unresolvedError) Unwrap() error { return e.err }

// parseReference parses the URL of a provider reference.
func parseReference(name string) (*url.URL, error) {
	u, err := url.Parse(name)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL") // the error of url.Parse quotes name
	case u.User != nil:
		return nil, errors.New("a reference must not contain a user or password")
	}
	return u, nil
}

// isURL reports whether a reference is a provider's URL, not the id of a secret.
func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && scheme != ""
}

// checkSize returns an error if a value is too large.
func checkSize(v string) error {
	if len(v) > maxValue {
		return fmt.Errorf("its value is larger than %d bytes", maxValue)
	}
	return nil
}

// checkText returns an error if a value cannot be part of a JSON string.
func checkText(v string) error {
	if !utf8.ValidString(v) {
		return errors.New("its value is not UTF-8 text, so it can only be used with getAsBase64")
	}
	return nil
}
