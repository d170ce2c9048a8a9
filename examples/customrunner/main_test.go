package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// R1, R2, P1: the program answers tasks of its own type, says what is wrong with
// a bad one, and unregisters when it is interrupted.
func TestTheProgramCountsWordsUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	srv := clienttest.NewServer()
	defer srv.Close()
	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	over := make(chan error, 1)
	go func() { over <- serve(interrupted, srv.URL, srv.Account, srv.Secret) }()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	good, err := srv.Submit(&task.Task{Type: "word_count", Data: json.RawMessage(`{"text":" how many  words"}`)}).Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, task.OK, good.Code)
	assert.JSONEq(t, `{"words":3}`, string(good.Data))
	bad, err := srv.Submit(&task.Task{Type: "word_count", Data: json.RawMessage(`{}`)}).Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, task.Failed, bad.Code)
	assert.Contains(t, string(bad.Data), "text is empty")

	interrupt()
	select {
	case err := <-over:
		require.NoError(t, err)
	case <-ctx.Done():
		require.FailNow(t, "the program does not end")
	}
	assert.Equal(t, 1, srv.Count(clienttest.CallUnregister))
}

func TestWithoutASecretTheProgramSaysSo(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, serve(t.Context(), "http://127.0.0.1:1", "demo", ""), "secret is empty")
}
