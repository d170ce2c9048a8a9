package secrets_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// fetch asks a provider for the value of a reference.
func fetch(t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(t.Context(), u)
}

// Rule S1.
func TestEnvFetchesOnlyVariablesWithThePrefix(t *testing.T) {
	t.Setenv("DLITE_SECRET_A", "value-a")
	t.Setenv("DLITE_SECRET_EMPTY", "")
	t.Setenv("DLITE_SECRET_JSON", `{"k":"inside"}`)
	t.Setenv("TOKEN", "the delegate's own")
	t.Setenv("OTHER_A", "other")
	p := secrets.Env("")
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
	v, err := fetch(t, secrets.Env("OTHER_"), "env://A")
	require.NoError(t, err)
	assert.Equal(t, "other", v)
}

func ExampleEnv() {
	_ = os.Setenv("DLITE_SECRET_DB", "not-a-real-password")
	defer os.Unsetenv("DLITE_SECRET_DB") //nolint:errcheck // an example
	r := secrets.NewResolver(secrets.NewSet(secrets.Config{}), secrets.ResolverConfig{
		Providers: secrets.Providers{"env": secrets.Env("")},
	})
	data, err := r.Resolve(context.Background(), []byte(`{"password":"${{secrets.env://DB}}"}`))
	fmt.Println(string(data), err)
	// Output: {"password":"not-a-real-password"} <nil>
}
