package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// A stream follows a bounded number of logs. Those that wait for their turn lose nothing.
func TestMoreLogsThanAStreamFollowsComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	m, logs := newManagerWithLogs(t, 2)
	s := newService(t, m, func(c *pipeline.Config) { c.Logs = logs })
	url := serve(t, s)
	const steps = 80
	var parallel strings.Builder
	for i := range steps {
		fmt.Fprintf(&parallel, "                  - step: {identifier: s%d, name: s%d, type: Run, spec: {command: echo %d}}\n", i, i, i)
	}
	i := strings.Index(chatty, "              - step: {identifier: first")
	run(t, s, chatty[:i]+"              - parallel:\n"+parallel.String(), func(r *api.RunRequest) { r.ID = "many" })
	live := logReader{t: t, url: url + "/api/runs/many/logs", texts: map[string][]string{}, nodes: map[string]string{}}
	for live.end == nil {
		require.Equal(t, 200, live.read(7))
	}
	assert.Empty(t, live.end.Unfinished)
	for i := range steps {
		assert.Equal(t, []string{fmt.Sprintf("%d\n", i)}, live.texts[fmt.Sprintf("many.build/s%d", i)])
	}
}
