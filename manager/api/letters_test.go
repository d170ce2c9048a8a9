package api_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/delegate-io/dlite/manager/api"
)

func TestDeadLettersAreListedDeliveredAndDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	db, err := sql.Open("sqlite", s.database+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	const written = 60 // more than a page
	for i := range written {
		_, err := db.ExecContext(t.Context(), `INSERT INTO messages (topic, account, run, name, lane, ready, tries, owner, problem, data)
			VALUES ('dead/events', ?, 'gone', ?, '', 0, 20, '', 'unreadable', '{"kind":"step_ended","node":"pipeline"}')`, account, fmt.Sprint("dead/", i))
		require.NoError(t, err)
	}
	whole := s.Letters(t.Context())
	list := func() (all []api.Letter) {
		for l, err := range whole {
			require.NoError(t, err)
			all = append(all, l)
		}
		return all
	}
	letters := list()
	require.Len(t, letters, written)
	require.Equal(t, letters, list(), "a second loop begins with the first page")
	first, second := letters[0], letters[1]
	assert.Equal(t, api.Letter{ID: first.ID, Run: "gone", Topic: "events", Kind: "step_ended", Node: "pipeline", Tries: 20, Problem: "unreadable"}, first)
	require.NoError(t, s.DeliverLetter(t.Context(), first.ID))
	require.NoError(t, s.DeleteLetter(t.Context(), second.ID))
	assert.Equal(t, letters[2:], list())
	err = s.DeliverLetter(t.Context(), second.ID)
	assert.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)
	require.Eventually(t, func() bool { // the run of the delivered letter does not exist
		var left int
		return db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM messages WHERE topic = 'events'`).Scan(&left) == nil && left == 0
	}, time.Minute, 10*time.Millisecond)
}
