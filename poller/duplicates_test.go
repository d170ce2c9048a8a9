package poller_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forgetful is a foreign manager that lists every task twice, also after its
// answer, and accepts every acquire.
type forgetful struct {
	mu       sync.Mutex
	acquired map[string]int
	answered map[string]int
	polls    int
	enough   chan struct{}
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/agent/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/register"):
		_, _ = fmt.Fprint(w, `{"resource":{"delegateId":"d1"}}`)
	case strings.HasSuffix(r.URL.Path, "/task-events"):
		var events []map[string]any
		for i := range 40 {
			events = append(events, map[string]any{"delegateTaskId": fmt.Sprint("t", i%20), "taskType": "echo"})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"delegateTaskEvents": events})
		if f.polls++; f.polls == 30 && len(f.answered) == 20 {
			close(f.enough)
		} else if f.polls >= 30 && len(f.answered) < 20 {
			f.polls = 29
		}
	case strings.HasSuffix(r.URL.Path, "/acquire"): // v2/delegates/D/tasks/T/acquire
		f.acquired[part[4]]++
		_, _ = fmt.Fprintf(w, `{"id":%q,"type":"echo","data":1}`, part[4])
	case r.Method == http.MethodPost && len(part) == 5: // v2/tasks/T/delegates/D
		f.answered[part[2]]++
	}
}

// P2: a task is acquired and answered once, even if the manager lists it again
// after its answer, and with any number of executors.
func TestATaskIsAcquiredOnceHoweverOftenItIsListed(t *testing.T) {
	t.Parallel()
	f := &forgetful{acquired: map[string]int{}, answered: map[string]int{}, enough: make(chan struct{})}
	srv := httptest.NewServer(f)
	defer srv.Close()
	c, err := client.New(srv.URL, "acct", strings.Repeat("0", 32))
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	p := poller.New(c, router.New(router.RouteMap{"echo": echo}))
	over := make(chan error, 1)
	go func() { over <- p.Poll(t.Context(), 8, "d1", time.Millisecond) }()
	receive(t, f.enough)
	require.NoError(t, p.Shutdown(within(t)))
	require.NoError(t, receive(t, over))
	require.Len(t, f.acquired, 20)
	for id := range f.acquired {
		assert.Equal(t, 1, f.acquired[id], "acquires of "+id)
		assert.Equal(t, 1, f.answered[id], "answers of "+id)
	}
}
