package testbed_test

import (
	"bufio"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

func TestARedisKeepsItsDataWhenItIsKilled(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	ask := func(command string) string {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Address)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.Write([]byte(command + "\r\n"))
		require.NoError(t, err)
		answer, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, ":1\r\n", ask("INCR n"))
	r.Kill()
	r.Kill()
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Address)
	require.Error(t, err)
	r.Start(t)
	require.Equal(t, ":2\r\n", ask("INCR n"))
}
