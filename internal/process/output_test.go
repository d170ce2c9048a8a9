package process

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestALimitedOutputHasWholeLines(t *testing.T) {
	t.Parallel()
	var o LimitedOutput
	line := strings.Repeat("x", 1000) + "\n"
	for range 2 * OutputLimit / len(line) {
		_, _ = o.Write([]byte(line))
	}
	assert.Equal(t, strings.Repeat(line, OutputLimit/len(line)), o.String())
}
