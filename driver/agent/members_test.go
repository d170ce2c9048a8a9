package agent

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/protocol.md describes each member of the messages that other packages cannot see.
// A test of package internal/docs checks the exported messages.
func TestProtocolPageHasAllMembersOfUnexportedMessages(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	for _, message := range []any{stepID{}, streamRequest{}, stopRequest{}, pollStepResponse{}, failure{}} {
		for f := range reflect.TypeOf(message).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			require.NotEmpty(t, name)
			// As a whole word: "id" is not in "delegateId".
			word := regexp.MustCompile(`(^|[^A-Za-z_-])` + regexp.QuoteMeta(name) + `([^A-Za-z_-]|$)`)
			assert.Regexp(t, word, string(page), "docs/protocol.md does not have %q", name)
		}
	}
}
