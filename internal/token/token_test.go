package token_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
)

var now = time.Unix(1_700_000_000, 0)

// seal encrypts any claims, as another client may.
func seal(t testing.TB, secret, claims string, alg jose.KeyAlgorithm, enc jose.ContentEncryption) string {
	t.Helper()
	key, err := hex.DecodeString(secret)
	require.NoError(t, err)
	e, err := jose.NewEncrypter(enc, jose.Recipient{Algorithm: alg, Key: key}, nil)
	require.NoError(t, err)
	jwe, err := e.Encrypt([]byte(claims))
	require.NoError(t, err)
	s, err := jwe.CompactSerialize()
	require.NoError(t, err)
	return s
}

// docs/protocol.md 1: the header and the claims of a token.
func TestIssuedTokenHasTheWireForm(t *testing.T) {
	t.Parallel()
	tok, err := parse(t, fakeSecret).Issue("acc", now, token.DefaultTTL)
	require.NoError(t, err)

	parts := strings.Split(tok, ".")
	require.Len(t, parts, 5)
	assert.Empty(t, parts[1], "dir has no encrypted key")
	header, err := base64.RawURLEncoding.DecodeString(parts[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"alg":"dir","enc":"A128GCM","typ":"JWT"}`, string(header))

	key, err := hex.DecodeString(fakeSecret)
	require.NoError(t, err)
	jwe, err := jose.ParseEncryptedCompact(tok, []jose.KeyAlgorithm{jose.DIRECT}, []jose.ContentEncryption{jose.A128GCM})
	require.NoError(t, err)
	plain, err := jwe.Decrypt(key)
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(plain, &claims))
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, claims["jti"])
	delete(claims, "jti")
	assert.Equal(t, map[string]any{
		"sub": "acc", "iss": "issuer", "aud": "audience", // a plain string
		"iat": float64(now.Unix()), "exp": float64(now.Add(20 * time.Minute).Unix()),
	}, claims)
}

func TestVerifyReturnsTheClaimsThatIssueWrote(t *testing.T) {
	t.Parallel()
	secret := parse(t, fakeSecret)
	tok, err := secret.Issue("acc", now, token.DefaultTTL)
	require.NoError(t, err)
	c, err := secret.Verify(tok, now)
	require.NoError(t, err)
	assert.Equal(t, "acc", c.Account)
	assert.Equal(t, "issuer", c.Issuer)
	assert.Equal(t, []string{"audience"}, c.Audience)
	assert.Equal(t, now.Unix(), c.IssuedAt.Unix())
	assert.Equal(t, now.Add(token.DefaultTTL).Unix(), c.Expires.Unix())

	other, err := secret.Issue("acc", now, token.DefaultTTL)
	require.NoError(t, err)
	assert.NotEqual(t, tok, other)
	d, err := secret.Verify(other, now)
	require.NoError(t, err)
	assert.NotEqual(t, c.ID, d.ID)
}

// docs/protocol.md 1: aud may be a string or a list, and lifetimes are not
// limited.
func TestVerifyAcceptsForeignTokens(t *testing.T) {
	t.Parallel()
	secret := parse(t, fakeSecret)
	for name, claims := range map[string]string{
		"aud list":         `{"sub":"acc","aud":["audience","x"],"exp":1700000600}`,
		"aud string":       `{"sub":"acc","aud":"audience","exp":1700000600}`,
		"no aud":           `{"sub":"acc","exp":1700000600}`,
		"10.5 hours":       `{"sub":"acc","iat":1700000000,"exp":1700037800}`,
		"unknown claims":   `{"sub":"acc","exp":1700000600,"role":{"a":1}}`,
		"fractional times": `{"sub":"acc","exp":1700000600.5}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := secret.Verify(seal(t, fakeSecret, claims, jose.DIRECT, jose.A128GCM), now)
			require.NoError(t, err)
			assert.Equal(t, "acc", c.Account)
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	secret := parse(t, fakeSecret)
	good := seal(t, fakeSecret, `{"sub":"acc","exp":1700000600}`, jose.DIRECT, jose.A128GCM)
	for name, tc := range map[string]struct {
		tok  string
		want error
	}{
		"nothing":         {"", token.ErrInvalid},
		"no token":        {"a.b.c.d.e", token.ErrInvalid},
		"another secret":  {seal(t, "ab00000000000000000000000000012c", `{"sub":"acc","exp":1700000600}`, jose.DIRECT, jose.A128GCM), token.ErrInvalid},
		"another key alg": {seal(t, fakeSecret, `{"sub":"acc","exp":1700000600}`, jose.A128KW, jose.A128GCM), token.ErrInvalid},
		"another enc":     {seal(t, fakeSecret+fakeSecret, `{"sub":"acc","exp":1700000600}`, jose.DIRECT, jose.A256GCM), token.ErrInvalid},
		"a changed token": {good[:len(good)-1] + flip(good[len(good)-1]), token.ErrInvalid},
		"a huge token":    {good + strings.Repeat("A", 16<<10), token.ErrInvalid},
		"no account":      {seal(t, fakeSecret, `{"exp":1700000600}`, jose.DIRECT, jose.A128GCM), token.ErrInvalid},
		"no expiry":       {seal(t, fakeSecret, `{"sub":"acc"}`, jose.DIRECT, jose.A128GCM), token.ErrInvalid},
		"absurd expiry":   {seal(t, fakeSecret, `{"sub":"acc","exp":1e300}`, jose.DIRECT, jose.A128GCM), token.ErrInvalid},
		"no object":       {seal(t, fakeSecret, `[]`, jose.DIRECT, jose.A128GCM), token.ErrInvalid},
		"expired":         {seal(t, fakeSecret, `{"sub":"acc","exp":1699999940}`, jose.DIRECT, jose.A128GCM), token.ErrExpired},
		"not yet valid":   {seal(t, fakeSecret, `{"sub":"acc","exp":1700000600,"nbf":1700000061}`, jose.DIRECT, jose.A128GCM), token.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := secret.Verify(tc.tok, now)
			require.ErrorIs(t, err, tc.want)
			if len(tc.tok) > 10 {
				assert.NotContains(t, err.Error(), tc.tok)
			}
		})
	}
}

// flip returns another character whose used bits differ.
func flip(c byte) string {
	if c == 'A' {
		return "Q"
	}
	return "A"
}

// A token is valid until a minute after its expiry, because clocks differ.
func TestExpiryHasALeeway(t *testing.T) {
	t.Parallel()
	secret := parse(t, fakeSecret)
	tok, err := secret.Issue("acc", now, time.Minute)
	require.NoError(t, err)
	_, err = secret.Verify(tok, now.Add(2*time.Minute-time.Second))
	require.NoError(t, err)
	_, err = secret.Verify(tok, now.Add(2*time.Minute))
	require.ErrorIs(t, err, token.ErrExpired)
}

func TestWithoutASecretNothingIsIssuedOrVerified(t *testing.T) {
	t.Parallel()
	_, err := token.Secret{}.Issue("acc", now, time.Minute)
	require.Error(t, err)
	_, err = parse(t, fakeSecret).Issue("", now, time.Minute)
	require.Error(t, err)
	// A token sealed with sixteen zero bytes must not open with the zero value.
	tok := seal(t, strings.Repeat("0", 32), `{"sub":"acc","exp":1700000600}`, jose.DIRECT, jose.A128GCM)
	_, err = token.Secret{}.Verify(tok, now)
	require.ErrorIs(t, err, token.ErrInvalid)
}

func FuzzVerify(f *testing.F) {
	secret := parse(f, fakeSecret)
	tok, err := secret.Issue("acc", now, time.Minute)
	require.NoError(f, err)
	f.Add(tok)
	f.Add("")
	f.Add("....")
	f.Add(`{"protected":"e30"}`)
	f.Add(seal(f, fakeSecret, `{"sub":"acc","exp":null,"aud":7}`, jose.DIRECT, jose.A128GCM))
	f.Fuzz(func(t *testing.T, s string) {
		c, err := secret.Verify(s, now)
		if err == nil && (c.Account == "" || c.Expires.IsZero()) {
			t.Fatal("a token without an account or an end was accepted")
		}
	})
}

func BenchmarkIssue(b *testing.B) {
	secret := parse(b, fakeSecret)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := secret.Issue("acc", now, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	secret := parse(b, fakeSecret)
	tok, err := secret.Issue("acc", now, time.Minute)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := secret.Verify(tok, now); err != nil {
			b.Fatal(err)
		}
	}
}

// A token has its role, and no token has an unknown one.
func TestATokenMayHaveARole(t *testing.T) {
	t.Parallel()
	secret, now := parse(t, fakeSecret), time.Now()
	for _, role := range []string{"", "read", "run", "operate"} {
		text, err := secret.IssueRole("a", role, now, time.Hour)
		require.NoError(t, err)
		claims, err := secret.Verify(text, now)
		require.NoError(t, err)
		assert.Equal(t, role, claims.Role)
	}
	_, err := secret.IssueRole("a", "root", now, time.Hour)
	require.ErrorContains(t, err, "it must be read, run or operate")
}
