package pipeline_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline"
)

func TestADeadLetterIsListedDeliveredAgainAndDropped(t *testing.T) {
	t.Parallel()
	var submits atomic.Int64
	m := &troubled{Manager: newManager(t, 1), submit: func(context.Context) error { submits.Add(1); panic("a defect") }}
	cfg := pipeline.Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")}
	s, err := pipeline.New(t.Context(), pipeline.Tuned(cfg, time.Minute, 2, false))
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	url := serve(t, s)
	r := run(t, s, oneStep("true"))
	require.Equal(t, "ERRORED", r.Status, tree(r))

	var page struct {
		Letters []struct {
			ID, Topic, Kind, Node, Problem string
			Run                            string `json:"run_id"`
			Tries                          int
		}
	}
	list := func(query string) {
		status, body := call(t, "GET", url+"/api/letters"+query, "")
		require.Equal(t, 200, status, body)
		page.Letters = nil
		require.NoError(t, json.Unmarshal([]byte(body), &page))
	}
	list("")
	require.Len(t, page.Letters, 1)
	l := page.Letters[0]
	assert.Equal(t, r.ID, l.Run)
	assert.Equal(t, "commands", l.Topic)
	assert.Equal(t, "pipeline.stages.build", l.Node)
	assert.Equal(t, 2, l.Tries)
	assert.Equal(t, "the service failed internally: a defect", l.Problem)
	list("?page=" + l.ID)
	assert.Empty(t, page.Letters)

	for method, path := range map[string]string{"POST": "/api/letters/x/deliver", "DELETE": "/api/letters/999"} {
		status, body := call(t, method, url+path, "")
		assert.Equal(t, 404, status, body)
	}
	status, body := call(t, "GET", url+"/api/letters?page=x", "")
	assert.Equal(t, 400, status, body)

	status, body = call(t, "POST", url+"/api/letters/"+l.ID+"/deliver", "")
	require.Equal(t, 204, status, body)
	require.Eventually(t, func() bool { // its run has ended: the command is handled, and opens nothing
		list("")
		return len(page.Letters) == 0
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(2), submits.Load())
	status, body = call(t, "DELETE", url+"/api/letters/"+l.ID, "")
	assert.Equal(t, 404, status, body)
}
