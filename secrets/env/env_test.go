package env_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fetch(t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(t.Context(), u)
}

// SPEC S1. Only what has the prefix is a task's to read.
func TestFetchesVariablesWithThePrefix(t *testing.T) {
	t.Setenv("DLITE_SECRET_A", "value-a")
	t.Setenv("DLITE_SECRET_EMPTY", "")
	t.Setenv("DLITE_SECRET_JSON", `{"k":"inside"}`)
	t.Setenv("TOKEN", "the delegate's own")
	t.Setenv("OTHER_A", "other")
	p := env.New(env.Config{})
	for ref, want := range map[string]string{"env://A": "value-a", "env://EMPTY": "", "env://JSON#k": "inside", "env://JSON": `{"k":"inside"}`} {
		v, err := fetch(t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
	for ref, want := range map[string]string{
		"env://TOKEN": "no such secret: the delegate has no variable DLITE_SECRET_TOKEN", "env://NONE": "no such secret",
		"env://A#k": "it is not JSON", "env://": "must be of the form", "env://A/B": "must be of the form", "env:A": "must be of the form",
		"env://A?x=1": "must be of the form",
	} {
		_, err := fetch(t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.NotContains(t, err.Error(), "value-a")
	}
	v, err := fetch(t, env.New(env.Config{Prefix: "OTHER_"}), "env://A")
	require.NoError(t, err)
	assert.Equal(t, "other", v)
}

func Example() {
	p := env.New(env.Config{Lookup: func(name string) (string, bool) { // instead of the real environment
		return "not-a-real-password", name == "DLITE_SECRET_DB"
	}})
	r := secrets.NewResolver(secrets.NewSet(secrets.Config{}), secrets.ResolverConfig{Providers: secrets.Providers{env.Scheme: p}})
	data, err := r.Resolve(context.Background(), []byte(`{"password":"${{secrets.env://DB}}"}`))
	fmt.Println(string(data), err)
	// Output: {"password":"not-a-real-password"} <nil>
}
