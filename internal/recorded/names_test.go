package recorded

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesAreUniqueAndRecognised(t *testing.T) {
	t.Parallel()
	a, b := NewName("tx"), NewName("tx")
	require.NotEqual(t, a, b)
	require.Equal(t, a[:len(a)-16], b[:len(b)-16], "the part that an operator looks for")
	require.NotEqual(t, a[:len(a)-16], NewName("ty")[:len(a)-16])
	require.True(t, IsName(a))
	for _, s := range []string{
		"", "dlite-", "bridge", a + "x", a + "0", a[:len(a)-1], a + "-step", strings.ToUpper(a), "../" + a, strings.Replace(a, "dlite", "other", 1),
		a[:len(a)-1] + "g", a[:len(namePrefix)] + "g" + a[len(namePrefix)+1:], "dlite-" + strings.Repeat("0", 29),
		"dlite-" + strings.Repeat("0", 13) + "-" + strings.Repeat("0", 15),
	} {
		require.False(t, IsName(s), s)
	}
}

func TestSlugsNameFilesContainersAndHosts(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"Build_1": "build-1", "a.b/c": "a-b-c", "--a--": "a", "": "x", "../..": "x", "é": "x",
		"0123456789abcdef": "01234567", "1234567-9": "1234567",
	} {
		assert.Equal(t, want, Slug(id, 8), id)
	}
}

func TestVariableNamesAreInCapitals(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "DB_1_EU_X", VariableName("db-1.eu_X"))
	assert.Equal(t, "_", VariableName("é"))
}
