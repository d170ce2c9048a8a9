package steps

import (
	"bytes"
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
)

// Rule L1: the logger in the context masks the secrets of its task; that of the
// configuration does not know them.
func TestACallLogsToTheLoggerOfItsContext(t *testing.T) {
	t.Parallel()
	var own, call bytes.Buffer
	d := &Driver{Config: Config{Log: zerolog.New(&own)}}
	d.Log(context.Background()).Warn().Msg("without a task")
	log := zerolog.New(&call)
	d.Log(log.WithContext(context.Background())).Warn().Msg("with a task")
	assert.Contains(t, own.String(), "without a task")
	assert.NotContains(t, own.String(), "with a task")
	assert.Contains(t, call.String(), "with a task")
}
