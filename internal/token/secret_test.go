package token_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
)

const fakeSecret = "98d8fedb04c574e68939164bf463e73d" // the example of docs/protocol.md 1

func parse(t testing.TB, s string) token.Secret {
	t.Helper()
	secret, err := token.ParseSecret(s)
	require.NoError(t, err)
	return secret
}

// docs/protocol.md 1: the golden values. One loses two leading zeros.
func TestHashDropsLeadingZeros(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{
		"98d8fedb04c574e68939164bf463e73d": "9d5c66162adf75e9258f8e30054d3d507c4e1f65c9511d6104c37d62a76bb04f",
		"ab00000000000000000000000000012c": "427e1637b3abbdf434a0034e6a55d5c809e30fc6d1ac11e701a537a346ca7f",
	} {
		assert.Equal(t, want, parse(t, secret).Hash())
	}
	assert.Empty(t, token.Secret{}.Hash())
}

// docs/protocol.md 1: a secret may be configured as the base64 of its 32 characters.
func TestBothFormsOfASecretAreTheSame(t *testing.T) {
	t.Parallel()
	plain := parse(t, fakeSecret)
	for _, form := range []string{
		base64.StdEncoding.EncodeToString([]byte(fakeSecret)),
		base64.RawStdEncoding.EncodeToString([]byte(fakeSecret)),
		" " + fakeSecret + "\n",
	} {
		got := parse(t, form)
		assert.True(t, plain == got)
		assert.Equal(t, fakeSecret, got.Reveal())
	}
}

// The hash depends on the case of the characters.
func TestSecretKeepsItsSpelling(t *testing.T) {
	t.Parallel()
	upper := strings.ToUpper(fakeSecret)
	secret := parse(t, upper)
	assert.Equal(t, upper, secret.Reveal())
	assert.NotEqual(t, parse(t, fakeSecret).Hash(), secret.Hash())
}

func TestBadSecretsAreRefusedWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"empty":              " ",
		"too short":          "98d8fedb04c574e6",
		"too long":           fakeSecret + "00",
		"not hexadecimal":    "zzd8fedb04c574e68939164bf463e73d",
		"base64 of 16 bytes": base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")),
		"base64 of no hex":   base64.StdEncoding.EncodeToString([]byte("zzd8fedb04c574e68939164bf463e73d")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, err := token.ParseSecret(s)
			require.Error(t, err)
			assert.True(t, secret.IsZero())
			if s := strings.TrimSpace(s); s != "" {
				assert.NotContains(t, err.Error(), s)
			}
		})
	}
}

// Rule S3: a logged secret is not readable.
func TestSecretDoesNotPrintItself(t *testing.T) {
	t.Parallel()
	type config struct{ Secret token.Secret }
	secret := parse(t, fakeSecret)
	inJSON, err := json.Marshal(config{secret})
	require.NoError(t, err)
	shown := []string{string(inJSON), secret.String(), secret.GoString()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, secret), fmt.Sprintf(verb, &secret), fmt.Sprintf(verb, config{secret}))
	}
	for _, s := range shown {
		assert.NotContains(t, s, fakeSecret)
		assert.NotContains(t, s, fmt.Sprintf("%x", fakeSecret))
		assert.NotContains(t, s, "152 216", "the key's bytes")
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add(fakeSecret)
	f.Add(base64.StdEncoding.EncodeToString([]byte(fakeSecret)))
	f.Add("")
	f.Add("====")
	f.Fuzz(func(t *testing.T, s string) {
		secret, err := token.ParseSecret(s)
		if err != nil {
			if !secret.IsZero() {
				t.Fatal("an error came with a secret")
			}
			return
		}
		again, err := token.ParseSecret(secret.Reveal())
		if err != nil || again != secret {
			t.Fatalf("the canonical form of %q does not parse to the same secret: %v", s, err)
		}
	})
}
