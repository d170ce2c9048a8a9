package pipeline_test

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

var chatty = oneStage("chatty", `
              - step: {identifier: first, name: first, type: Run, spec: {command: "for i in $(seq 300); do echo first $i; done"}}
              - parallel:
                  - step: {identifier: left, name: left, type: Run, spec: {command: "for i in $(seq 40); do echo left $i; sleep 0.01; done"}}
                  - step: {identifier: right, name: right, type: Run, spec: {command: "for i in $(seq 40); do echo right $i; sleep 0.01; done"}}
              - stepGroup:
                  identifier: group
                  name: group
                  steps:
                    - step:
                        identifier: again
                        name: again
                        type: Run
                        spec: {command: "echo try; exit 1"}
                        failureStrategies: [{onFailure: {errors: [AllErrors], action: {type: Retry, spec: {retryCount: 1, onRetryFailure: {action: {type: Ignore}}}}}}]
              - step: {identifier: silent, name: silent, type: Run, spec: {command: "true"}}
`)

type logPart struct {
	Node    string
	Attempt int
	LogKey  string `json:"log_key"`
	Lines   []logger.Line
}

type logEnd struct {
	Status     string
	Unfinished map[string]string
}

// logReader collects the lines of streams by log, and fails if one is missing or doubled.
type logReader struct {
	t     *testing.T
	url   string
	since string
	texts map[string][]string
	nodes map[string]string // by log
	end   *logEnd
	// connected is called when the stream has begun.
	connected func()
}

// read reads events until the stream ends or has had a number of events, and returns the status.
func (r *logReader) read(events int) int {
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.url, nil)
	require.NoError(r.t, err)
	if r.since != "" {
		req.Header.Set("Last-Event-ID", r.since)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, resp.Body.Close()) }()
	if r.connected != nil {
		r.connected()
	}
	var kind string
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for events > 0 && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "id":
			r.since = value
		case "data":
			events--
			if kind == "end" {
				require.NoError(r.t, json.Unmarshal([]byte(value), &r.end))
				continue
			}
			var part logPart
			require.NoError(r.t, json.Unmarshal([]byte(value), &part))
			r.nodes[part.LogKey] = part.Node + "#" + strconv.Itoa(part.Attempt)
			for _, l := range part.Lines {
				require.Equal(r.t, int64(len(r.texts[part.LogKey])), l.Pos, "a line of %s is missing or doubled", part.LogKey)
				r.texts[part.LogKey] = append(r.texts[part.LogKey], l.Out)
			}
		}
	}
	return resp.StatusCode
}

func TestTheLogsOfARunAreOneStreamThatContinuesWhereItBroke(t *testing.T) {
	t.Parallel()
	m, logs := newManagerWithLogs(t, 2)
	s := newService(t, m, func(c *pipeline.Config) { c.Logs = logs })
	url := serve(t, s)
	started, err := s.Start(t.Context(), account, api.RunRequest{YAML: chatty, ID: "chat"})
	require.NoError(t, err)

	live := logReader{t: t, url: url + "/api/runs/chat/logs", texts: map[string][]string{}, nodes: map[string]string{}}
	for live.end == nil { // the connection breaks after each few events
		require.Equal(t, 200, live.read(3))
	}
	assert.Equal(t, "IGNORE_FAILED", live.end.Status)
	assert.Equal(t, 204, live.read(1), "after the end there is nothing more")

	run, err := s.Wait(t.Context(), account, started.ID)
	require.NoError(t, err)
	const steps = "pipeline.stages.build.spec.execution.steps."
	want := map[string]string{ // by the keys that the tree shows
		node(t, run, ".first").LogKey: steps + "first#1", node(t, run, ".left").LogKey: steps + "left#1", node(t, run, ".right").LogKey: steps + "right#1",
		node(t, run, ".again").LogKey: steps + "group.steps.again#2", node(t, run, ".again").Past[0].LogKey: steps + "group.steps.again#1",
	}
	for key, name := range want {
		assert.Equal(t, name, live.nodes[key], "%v", live.nodes)
		var written []string
		for l, err := range logs.Lines(t.Context(), account, key, 0, false) {
			require.NoError(t, err)
			written = append(written, l.Out)
		}
		assert.Equal(t, written, live.texts[key])
	}
	assert.Len(t, live.texts["chat.build/first"], 300)
	assert.Len(t, live.texts["chat.build/left"], 40)

	// The keys are the manager's.
	stage, err := m.Stage(account, "chat.build")
	require.NoError(t, err)
	assert.Equal(t, stage.Init.LogKey, node(t, run, "stages.build").LogKey)
	for _, step := range stage.Steps {
		assert.Equal(t, step.LogKey, "chat.build/"+step.ID)
	}

	// Afterwards the logs come one after the other.
	status, text := call(t, "GET", url+"/api/runs/chat/logs?format=text", "")
	require.Equal(t, 200, status)
	assert.Less(t, strings.Index(text, "build/first | first 300\n"), strings.Index(text, "build/left | left 1\n"))
	assert.Contains(t, text, "build/left | left 39\nbuild/left | left 40\n")
	assert.Equal(t, 2, strings.Count(text, "build/group/again | try\n"))
	for path, want := range map[string]string{"?since=7,5": "since", "?format=xml": "use sse or text", "?from=1": "unknown parameter"} {
		status, body := call(t, "GET", url+"/api/runs/chat/logs"+path, "")
		assert.Equal(t, 400, status)
		assert.Contains(t, body, want)
	}
	status, _ = call(t, "GET", url+"/api/runs/none/logs", "")
	assert.Equal(t, 404, status)
}

// endless has logs without an end.
type endless struct{}

func (endless) Lines(ctx context.Context, _, _ string, _ int64, _ bool) iter.Seq2[logger.Line, error] {
	return func(func(logger.Line, error) bool) { <-ctx.Done() }
}

func TestTheStreamEndsWithoutTheEndsOfLogs(t *testing.T) {
	t.Parallel()
	m, logs := newManagerWithLogs(t, 0)
	for id, source := range map[string]pipeline.Logs{"never": logs, "endless": endless{}} {
		s := newService(t, m, func(c *pipeline.Config) { c.Logs = source })
		url := serve(t, s)
		_, err := s.Start(t.Context(), account, api.RunRequest{YAML: chatty, ID: id})
		require.NoError(t, err)
		live := logReader{t: t, url: url + "/api/runs/" + id + "/logs", texts: map[string][]string{}, nodes: map[string]string{}}
		live.connected = func() {
			_, err = s.Abort(t.Context(), account, id, api.Order{})
			require.NoError(t, err)
		}
		require.Equal(t, 200, live.read(1000))
		require.NotNil(t, live.end, id)
		assert.Equal(t, "ABORTED", live.end.Status)
		if id == "endless" {
			assert.Equal(t, map[string]string{"endless.build/:init": "the log has no end"}, live.end.Unfinished)
		}
	}
}
