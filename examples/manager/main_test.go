package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/serving"
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
		got, err := serving.ParseAccounts(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

// Rule X2: the error names the wrong account and shows no secret.
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
		_, err := serving.ParseAccounts(text)
		require.ErrorContains(t, err, want)
		for _, secret := range []string{wrong, fakeSecret, otherSecret} {
			assert.NotContains(t, err.Error(), secret)
		}
	}
}

func TestATokenIsOfItsAccountAndAsLongAsAskedFor(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret}
	text, err := issue(accounts, "a", 3*time.Hour, "")
	require.NoError(t, err)
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	claims, err := secret.Verify(text, time.Now())
	require.NoError(t, err)
	assert.Equal(t, "a", claims.Account)
	assert.WithinDuration(t, time.Now().Add(3*time.Hour), claims.Expires, time.Minute)
	_, err = issue(accounts, "b", time.Hour, "")
	require.ErrorContains(t, err, `no account "b"`)
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	c := &serverCommand{Options: serving.Options{Listen: taken.Addr().String(), LogLevel: "error"}}
	require.ErrorContains(t, serve(context.Background(), c, nil, io.Discard), "listen")
	require.ErrorContains(t, serve(context.Background(), &serverCommand{Options: serving.Options{LogLevel: "loud"}}, nil, io.Discard), "loud")
}

// Rule X2: a settings file may hold every setting; flags and the environment win over it. An unknown name is an
// error that suggests the name that was meant. No error shows a secret.
func TestTheSettingsFileHoldsEverySetting(t *testing.T) {
	dir := t.TempDir()
	parse := func(text string, args ...string) (*serverCommand, map[string]string, error) {
		file := filepath.Join(dir, "manager.env")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c := &serverCommand{}
		var got map[string]string
		command := c.command(func(_ context.Context, accounts map[string]string, _ []string) error {
			got = accounts
			return nil
		})
		return c, got, command.ParseAndRun(t.Context(), append([]string{"--env-file", file}, args...))
	}
	const settings = "ACCOUNTS=\"a=" + fakeSecret + "\"\nLISTEN=127.0.0.1:1\nHTTP_BIND=off\nLOGS_MAX_AGE_DAYS=3\nSTORE=memory\nSTORE_KEY=" + fakeStoreKey + "\n"
	c, _, err := parse(settings)
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:1", c.Listen)
	assert.Equal(t, "off", c.HTTPBind)
	assert.Equal(t, 3, c.LogsMaxAgeDays)
	assert.Equal(t, "memory", c.Store)
	assert.Equal(t, fakeStoreKey, c.StoreKey)

	c, _, err = parse(settings, "--listen", "127.0.0.1:2")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:2", c.Listen)
	t.Setenv("LISTEN", "127.0.0.1:3")
	t.Setenv("ACCOUNTS", "b="+otherSecret)
	c, _, err = parse(settings)
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:3", c.Listen)

	_, _, err = parse("LISTENS=x\n")
	require.ErrorContains(t, err, "unknown setting LISTENS: did you mean LISTEN?")
	_, _, err = parse("ACCOUNT=a=" + fakeSecret + "\n")
	require.ErrorContains(t, err, "did you mean ACCOUNTS?")
	assert.NotContains(t, err.Error(), fakeSecret)
	_, _, err = parse("ACCOUNTS \"a=" + fakeSecret + "\"\n")
	require.ErrorContains(t, err, "manager.env")
	assert.NotContains(t, err.Error(), fakeSecret)
	_, _, err = parse("LOGS_MAX_AGE_DAYS=many\n")
	require.ErrorContains(t, err, "LOGS_MAX_AGE_DAYS")
}

// Rule X3: "token demo" works for the account that the server created, and prints when the token expires.
func TestATokenOfTheDemoAccount(t *testing.T) {
	t.Parallel()
	store := storeOptions{Store: "sqlite", DataDir: t.TempDir()}
	accounts, err := store.demoAccount()
	require.NoError(t, err)
	var out, notes bytes.Buffer
	c := tokenCommand{storeOptions: store, Account: demo, For: time.Hour}
	require.NoError(t, c.print(nil, &out, &notes))
	secret, err := token.ParseSecret(accounts[demo])
	require.NoError(t, err)
	claims, err := secret.Verify(strings.TrimSpace(out.String()), time.Now())
	require.NoError(t, err)
	assert.Equal(t, demo, claims.Account)
	assert.Contains(t, notes.String(), "valid for 1h0m0s, until "+claims.Expires.Local().Format("2006-01-02"))
	c.Account = "other"
	require.ErrorContains(t, c.print(nil, &out, &notes), `there is no account "other"`)
}

// Rule X3: the program reports a wrong setting before it takes the port and the database.
func TestSettingsAreCheckedBeforeThePortIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	for want, c := range map[string]*serverCommand{
		"PUBLIC_URL: it must begin with http:// or https://": {PublicURL: "manager.example:80"},
		"LOGS_MAX_AGE_DAYS":     {LogsMaxAgeDays: -1},
		"OPERATOR_TOKEN":        {storeOptions: storeOptions{OperatorToken: "short"}},
		"MAX_CONNECTIONS":       {Options: serving.Options{Connections: -1}},
		"STORE: it is \"disk\"": {storeOptions: storeOptions{Store: "disk", StoreKey: fakeSecret}},
		"STORE_KEY":             {storeOptions: storeOptions{Store: "redis://127.0.0.1:1/0"}},
	} {
		c.Listen, c.LogLevel = taken.Addr().String(), "error"
		err := serve(context.Background(), c, map[string]string{"a": fakeSecret}, io.Discard)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "LISTEN:")
	}
}
