package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/token"
)

func TestATokenForAnotherProcessHasItsLifetime(t *testing.T) {
	t.Parallel()
	c, err := client.New("https://manager.example", "acc", fakeSecret)
	require.NoError(t, err)
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	for lifetime, want := range map[time.Duration]time.Duration{0: 20 * time.Minute, time.Hour: time.Hour} {
		tok, err := c.Token(lifetime)
		require.NoError(t, err)
		claims, err := secret.Verify(tok, time.Now())
		require.NoError(t, err)
		assert.Equal(t, "acc", claims.Account)
		assert.Equal(t, want, claims.Expires.Sub(claims.IssuedAt))
	}
	for _, lifetime := range []time.Duration{-1, 25 * time.Hour} {
		_, err := c.Token(lifetime)
		require.ErrorContains(t, err, "is not between 0 and 24h0m0s")
	}
	fixed, err := client.New("https://manager.example", "acc", "", client.WithToken("not-a-real-token"))
	require.NoError(t, err)
	tok, err := fixed.Token(time.Minute)
	require.NoError(t, err)
	require.Equal(t, "not-a-real-token", tok)
}
