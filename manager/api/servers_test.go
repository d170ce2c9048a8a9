package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// replica is a manager of a store. It sends the answers in their order, and records the calls.
type replica struct {
	url string

	mu    sync.Mutex
	calls []string
}

// got returns the calls.
func (r *replica) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

type reply struct {
	status int
	body   string
}

func newReplica(t *testing.T, replies ...reply) *replica {
	t.Helper()
	r := &replica{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next := reply{http.StatusOK, `{"id":"a"}`}
		r.mu.Lock()
		if len(r.calls) < len(replies) {
			next = replies[len(r.calls)]
		}
		r.calls = append(r.calls, req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		if next.status == 0 {
			panic(http.ErrAbortHandler)
		}
		if req.URL.Path == "/api/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(next.status)
		_, _ = fmt.Fprint(w, next.body)
	}))
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func clientOf(t *testing.T, replicas ...*replica) *api.Client {
	t.Helper()
	cfg := api.Config{Account: account, Token: "fake", RetryFor: -1, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, r := range replicas {
		cfg.URLs = append(cfg.URLs, r.url)
	}
	c, err := api.New(cfg)
	require.NoError(t, err)
	return c
}

func TestACallThatNoManagerAnswersGoesToTheNextAddress(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]reply{
		"no answer":            {},
		"no answer of ours":    {http.StatusNotFound, "no such page"},
		"an answer cut short":  {http.StatusOK, `{"id":`},
		"a store that is away": {http.StatusServiceUnavailable, `{"error_msg":"the store does not answer"}`},
	} {
		first, second := newReplica(t, bad), newReplica(t)
		c := clientOf(t, first, second)
		for range 2 { // the second call begins at the address that answered
			_, err := c.Stage(t.Context(), "a")
			require.NoError(t, err, name)
		}
		assert.Len(t, first.got(), 1, name)
		assert.Len(t, second.got(), 2, name)
	}
}

func TestARefusalIsNotSentToTheNextAddress(t *testing.T) {
	t.Parallel()
	first := newReplica(t, reply{http.StatusNotFound, `{"error_msg":"the stage \"a\" is not found"}`})
	second := newReplica(t)
	_, err := clientOf(t, first, second).Stage(t.Context(), "a")
	assert.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)
	assert.Empty(t, second.got())
}

func TestACallThatCouldActTwiceIsNotSentToTheNextAddress(t *testing.T) {
	t.Parallel()
	first, second := newReplica(t, reply{}), newReplica(t)
	c := clientOf(t, first, second)
	_, err := c.TriggerSchedule(t.Context(), "nightly")
	require.ErrorContains(t, err, "cannot reach the manager")
	assert.Empty(t, second.got())
	_, err = c.TriggerSchedule(t.Context(), "nightly")
	require.NoError(t, err)
	assert.Len(t, first.got(), 1)
	assert.Len(t, second.got(), 1)
}

func TestAnOutageNamesEachAddress(t *testing.T) {
	t.Parallel()
	first := newReplica(t, reply{http.StatusServiceUnavailable, `{"error_msg":"the manager is closed"}`})
	second := newReplica(t, reply{})
	_, err := clientOf(t, first, second).Stage(t.Context(), "a")
	require.ErrorContains(t, err, first.url[len("http://"):]+": the manager is closed")
	require.ErrorContains(t, err, second.url[len("http://"):]+": cannot reach the manager")
}

func TestALostFeedContinuesAtTheNextAddress(t *testing.T) {
	t.Parallel()
	first := newReplica(t, reply{http.StatusOK, "id: 7\n\n"})
	second := newReplica(t, reply{http.StatusOK, "id: 7\n\nid: 8\nevent: status\ndata: {\"type\":\"stage\",\"status\":\"QUEUED\"}\n\n"})
	var ids []uint64
	for e, err := range clientOf(t, first, second).Events(t.Context(), api.EventFilter{}) {
		if err != nil {
			continue
		}
		if ids = append(ids, e.ID); e.ID == 8 {
			break
		}
	}
	assert.Equal(t, []uint64{7, 7, 8}, ids)
	assert.Len(t, first.got(), 1)
	assert.Len(t, second.got(), 1)
}
