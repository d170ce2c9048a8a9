package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// A service that closes must not leave the commands that it has carried out: their lanes would wait for the ends of the claims.
func TestAllFinishedMessagesAreRemovedWhenTheServiceCloses(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "pipelines.db"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, st.Close()) }()
	closed, cancel := context.WithCancel(t.Context())
	cancel()
	for round := range 20 {
		s := &Service{store: st, finished: make(chan store.Message, queued)}
		require.NoError(t, st.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(store.Message{Topic: topicCommands, Account: "a", Run: "r", Name: fmt.Sprint(round)})
		}))
		messages, err := st.Claim(t.Context(), topicCommands, "owner", time.Now(), time.Hour, 1)
		require.NoError(t, err)
		require.Len(t, messages, 1)
		require.NoError(t, s.finish(t.Context(), messages[0]))
		s.finishAll(closed)
		messages, err = st.Claim(t.Context(), topicCommands, "next", time.Now().Add(2*time.Hour), time.Hour, 1)
		require.NoError(t, err)
		require.Empty(t, messages)
	}
}
