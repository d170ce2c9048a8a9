package secrettask_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets/internal/secrettask"
)

func TestHandleAnswersWithTheResultOrTheError(t *testing.T) {
	t.Parallel()
	type data struct{ Name string }
	h := secrettask.Handle(func(_ context.Context, in data) (any, error) {
		switch in.Name {
		case "":
			return nil, errors.New("the task has no name")
		case "unencodable":
			return func() {}, nil
		}
		return map[string]string{"hello": in.Name}, nil
	})
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"data":{"name":"world"}}`:       {200, `{"hello":"world"}`},
		`{"data":{}}`:                     {500, `{"code":500,"error_msg":"the task has no name"}`},
		`{"data":{"name":"unencodable"}}`: {500, `{"error_msg":"the answer cannot be encoded","code":500}`},
		`{"data":{"name":7,"x":"hush"}}`:  {400, `{"code":400,"error_msg":"the data of the secret task does not have the form that its type requires"}`},
		`hush`:                            {400, `{"code":400,"error_msg":"the data of the secret task does not have the form that its type requires"}`},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		assert.Equal(t, want.status, rec.Code, body)
		assert.JSONEq(t, want.text, rec.Body.String(), body)
		assert.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	}
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Body = nil
	h.ServeHTTP(rec, r)
	assert.Equal(t, 400, rec.Code)
}

func TestDecodeValueShowsNoPartOfTheValue(t *testing.T) {
	t.Parallel()
	v, err := secrettask.DecodeValue(false, "aHVzaA==")
	require.NoError(t, err)
	assert.Equal(t, "aHVzaA==", v)
	v, err = secrettask.DecodeValue(true, "aHVzaA==")
	require.NoError(t, err)
	assert.Equal(t, "hush", v)
	_, err = secrettask.DecodeValue(true, "hush!")
	require.EqualError(t, err, "the value is not base64")
}
