// Package secrettask has the parts that handlers of secret tasks share. Package task
// has a handler with more features, but a package of secret providers imports only
// package secrets. Start at Handle.
package secrettask

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// DecodeValue decodes a value from base64 if encoded is true. The error shows no part
// of the value.
func DecodeValue(encoded bool, value string) (string, error) {
	if !encoded {
		return value, nil
	}
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return "", errors.New("the value is not base64")
	}
	return string(b), nil
}

// maxTask is the largest task that a handler reads, in bytes. Package task has the
// same limit.
const maxTask = 32 << 20

// Handle returns a task handler that calls f with the task's data. If f returns an
// error, the handler answers with status 500 and the error's text. If the data does
// not fit In, it answers with status 400 and does not quote the data, which may
// contain a secret.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t struct {
			Data In `json:"data"`
		}
		if r.Body == nil {
			writeError(w, http.StatusBadRequest, errors.New("the request has no body"))
			return
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxTask)).Decode(&t); err != nil {
			writeError(w, http.StatusBadRequest, errors.New("the data of the secret task does not have the form that its type requires"))
			return
		}
		out, err := f(r.Context(), t.Data)
		if err != nil {
			writeError(w, http.StatusInternalServerError, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	})
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]any{"error_msg": err.Error(), "code": status})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error_msg":"the answer cannot be encoded","code":500}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have closed the connection
}
