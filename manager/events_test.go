package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// sent is an event as a stream sends it.
type sent struct {
	id, kind string
	api.Event
}

// events opens a stream of events, which ends with the test.
func (s *server) events(query, lastID string) <-chan sent {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/events?accountId=acc"+query, nil)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+s.token)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := s.http.Do(req) //nolint:bodyclose // when the test ends
	require.NoError(s.t, err)
	require.Equal(s.t, 200, resp.StatusCode)
	out, over := make(chan sent, 1000), make(chan struct{})
	go func() {
		defer close(over)
		defer close(out)
		var e sent
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				if json.Unmarshal([]byte(value), &e.Event) != nil {
					return
				}
			case "":
				if e.kind != "" {
					select {
					case out <- e:
					case <-ctx.Done():
					}
				}
				e = sent{}
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-over
		_ = resp.Body.Close()
	})
	return out
}

// next returns the next event of a kind.
func next(t *testing.T, events <-chan sent, kind string) sent {
	t.Helper()
	for {
		e := within5(t, events)
		require.NotEmpty(t, e.kind, "the stream has ended")
		if e.kind == kind {
			return e
		}
	}
}

// Rule Q5: a stream shows that a stage waits, with its place, the reason and the
// time, and all later changes. A client that reconnects misses nothing.
func TestAStageIsWatched(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+d+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	all := s.events("&since=0", "")
	s.submit(`{"id":"one","steps":[{"id":"s","data":{}}]}`)
	s.pass(d, dockerTypes[0], succeeded)
	s.submit(`{"id":"two"}`)
	s.submit(`{"id":"three"}`)
	s.clock.Advance(1500 * time.Millisecond)

	three := s.events("&stage=three", "")
	e := next(t, three, "place")
	assert.Equal(t, 2, e.Place)
	assert.EqualValues(t, 1500, e.Waited)
	assert.Contains(t, e.Reason, "slot")
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	require.Equal(t, api.Success, s.ended("one").Status)
	s.clock.Advance(time.Second)
	assert.Equal(t, 1, next(t, three, "place").Place, "the stage before it has ended")

	var seen []string
	var third string
	for len(seen) < 9 {
		e := next(t, all, "status")
		if e.Stage == "one" {
			seen = append(seen, e.Type+" "+e.Step+" "+string(e.Status))
		}
		if len(seen) == 3 && third == "" {
			third = e.id
		}
	}
	assert.Equal(t, []string{
		"stage  QUEUED", "stage  RUNNING", "step init RUNNING", "step init SUCCESS", "step s RUNNING", "step s SUCCESS",
		"step cleanup RUNNING", "step cleanup SUCCESS", "stage  SUCCESS",
	}, seen)
	back := s.events("", third)
	assert.Equal(t, "init", next(t, back, "status").Step)
	assert.Empty(t, s.as(otherSecret, otherAccount).m.Events(otherAccount, 0).Events, "accounts do not see each other")
}

// A client that reconnects too late, or with an id that never existed, gets the
// event "missed".
func TestEventsThatAreNoLongerKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	f := s.m.Events(account, 7)
	assert.True(t, f.Missed)
	assert.Equal(t, "missed", within5(t, s.events("&since=7", "")).kind)
	const many = 3 * 4096
	for range many / 2 {
		got, err := s.m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: custom})
		require.NoError(t, err)
		_, err = s.m.AbortTask(t.Context(), account, got.ID)
		require.NoError(t, err)
	}
	f = s.m.Events(account, 1)
	assert.True(t, f.Missed)
	assert.GreaterOrEqual(t, len(f.Events), 4096)
	assert.EqualValues(t, many, f.Last)
	assert.EqualValues(t, many, f.Events[len(f.Events)-1].ID)
	assert.False(t, s.m.Events(account, f.Last).Missed)
	r := s.call("GET", "/api/events?accountId=acc&since=x", "")
	assert.Equal(t, 400, r.status)
	r = s.call("GET", "/api/events?accountId=acc&stage=none", "")
	assert.Equal(t, 404, r.status)
}
