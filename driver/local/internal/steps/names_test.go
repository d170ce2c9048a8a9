package steps

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/recorded"
)

func TestIsOursAcceptsOnlyNamesOfTransactions(t *testing.T) {
	t.Parallel()
	a := recorded.NewName("tx")
	require.True(t, IsOurs(a))
	require.True(t, IsOurs(a+"-step"))
	for _, s := range []string{"", "dlite-", "bridge", a + "x", strings.ToUpper(a), "../" + a, a[:len(a)-1] + "g"} {
		require.False(t, IsOurs(s), s)
	}
}
