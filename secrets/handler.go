package secrets

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Secret is what a secret task answers with (PROTOCOL 2).
type Secret struct {
	ID    string `json:"id"`
	Value string `json:"value"`
}

// String names the secret, and does not show it.
func (s Secret) String() string { return fmt.Sprintf("secrets.Secret(%s)", s.ID) }

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// StaticHandler is the handler for tasks of type "secret/static" (task.TypeSecretStatic). The protocol
// description does not give their payload; this is what existing runners take:
//
//	{"secrets": [{"id": "...", "value": "...", "base64": false}]}
//
// With base64 the value is decoded first. The list must have one element, because
// the answer has room for one.
func StaticHandler() http.Handler {
	return Handle(func(_ context.Context, in struct {
		Secrets []struct {
			Secret
			Base64 bool `json:"base64"`
		} `json:"secrets"`
	}) (Secret, error) {
		if len(in.Secrets) != 1 {
			return Secret{}, fmt.Errorf("a static secret task must have one secret, this one has %d", len(in.Secrets))
		}
		s := in.Secrets[0]
		v, err := DecodeIf(s.Base64, s.Value)
		return Secret{ID: s.ID, Value: v}, err
	})
}

// DecodeIf decodes a value from base64 if it is encoded. Its error shows nothing
// of the value.
func DecodeIf(encoded bool, value string) (string, error) {
	if !encoded {
		return value, nil
	}
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return "", errors.New("the value is not base64")
	}
	return string(b), nil
}

// maxTask bounds the body that a handler reads, as package task does.
const maxTask = 32 << 20

// Handle makes a task handler of a function that gets the task's data. An error
// is answered with status 500, data that does not fit with 400; what is wrong
// with it is not quoted, as it may be a secret. Package task has a richer form of
// this, which a package of providers cannot use: it imports secrets alone.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t struct {
			Data In `json:"data"`
		}
		if r.Body == nil {
			fail(w, http.StatusBadRequest, errors.New("the request has no body"))
			return
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxTask)).Decode(&t); err != nil {
			fail(w, http.StatusBadRequest, errors.New("the secret task's data does not have the form that its type wants"))
			return
		}
		out, err := f(r.Context(), t.Data)
		if err != nil {
			fail(w, http.StatusInternalServerError, err)
			return
		}
		answer(w, http.StatusOK, out)
	})
}

func fail(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string]any{"error_msg": err.Error(), "code": status})
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error_msg":"the answer cannot be encoded","code":500}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the reader may be gone; there is nobody left to tell
}
