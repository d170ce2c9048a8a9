package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
)

func TestAccountsAreAListOfIdsAndSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                                       {},
		" , ":                                    {},
		"a=" + fakeSecret:                        {"a": fakeSecret},
		" a = " + fakeSecret:                     {"a": fakeSecret},
		"a=" + fakeSecret + ",":                  {"a": fakeSecret},
		"a=" + fakeSecret + ", b=" + otherSecret: {"a": fakeSecret, "b": otherSecret},
		"a=MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDE=": {"a": "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDE="},
	} {
		got, err := parseAccounts(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

// X2: what is wrong is named, and no secret shows.
func TestWrongAccountsAreNamedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	const wrong = "visibly-fake-secret"
	for text, want := range map[string]string{
		wrong:                                   "entry 1",
		"a=" + fakeSecret + "," + otherSecret:   "entry 2",
		"=" + fakeSecret:                        "entry 1",
		"a=" + wrong:                            `the secret of "a"`,
		"a=" + fakeSecret + ",a=" + otherSecret: `"a" is there twice`,
	} {
		_, err := parseAccounts(text)
		require.ErrorContains(t, err, want)
		for _, secret := range []string{wrong, fakeSecret, otherSecret} {
			assert.NotContains(t, err.Error(), secret)
		}
	}
}

// The environment goes before the file; a broken file is not quoted.
func TestWhereAccountsComeFrom(t *testing.T) {
	dir := t.TempDir()
	file, broken := filepath.Join(dir, "manager.env"), filepath.Join(dir, "broken.env")
	require.NoError(t, os.WriteFile(file, []byte(`ACCOUNTS="a=`+fakeSecret+`"`), 0o600))
	require.NoError(t, os.WriteFile(broken, []byte(`ACCOUNTS "a=`+fakeSecret+`"`), 0o600))
	got, err := readAccounts(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": fakeSecret}, got)
	_, err = readAccounts(broken)
	require.ErrorContains(t, err, "broken.env")
	assert.NotContains(t, err.Error(), fakeSecret)

	t.Setenv("ACCOUNTS", "b="+otherSecret)
	got, err = readAccounts(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"b": otherSecret}, got)
}

func TestATokenIsOfItsAccountAndAsLongAsAskedFor(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret}
	text, err := issue(accounts, "a", 3*time.Hour)
	require.NoError(t, err)
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	claims, err := secret.Verify(text, time.Now())
	require.NoError(t, err)
	assert.Equal(t, "a", claims.Account)
	assert.WithinDuration(t, time.Now().Add(3*time.Hour), claims.Expires, time.Minute)
	_, err = issue(accounts, "b", time.Hour)
	require.ErrorContains(t, err, `no account "b"`)
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	c := &serverCommand{Listen: taken.Addr().String(), LogLevel: "error"}
	require.ErrorContains(t, serve(context.Background(), c, nil, io.Discard), "listen")
	require.ErrorContains(t, serve(context.Background(), &serverCommand{LogLevel: "loud"}, nil, io.Discard), "loud")
}
