package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

// talker is a driver whose steps print.
type talker struct{ bytes int }

func (talker) Infra() string { return "talker" }

func (talker) Init(context.Context, *driver.Environment, driver.Ledger) error { return nil }

func (t talker) Execute(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer, _ driver.Ledger) (*driver.Result, error) {
	_, err := out.Write(make([]byte, t.bytes))
	return &driver.Result{}, err
}

func (talker) Cleanup(context.Context, []driver.Resource) ([]driver.Resource, error) { return nil, nil }

// Rule L2: output that cannot be read any more does not look like output that has ended.
func TestAStreamThatBreaksDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	a := New(talker{4 * chunkSize}, Config{TempDir: t.TempDir(), MaxMemory: 1})
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	post := func(path, body string) ([]byte, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		return io.ReadAll(resp.Body)
	}
	for _, call := range [][2]string{{"/setup", ""}, {"/start_step", `{"id":"x"}`}, {"/poll_step", `{"id":"x"}`}} {
		_, err := post(call[0], call[1])
		require.NoError(t, err)
	}
	whole, err := post("/stream_output", `{"id":"x"}`)
	require.NoError(t, err)
	require.Len(t, whole, 4*chunkSize)
	s, err := a.tx.find("x")
	require.NoError(t, err)
	require.NoError(t, s.out.file.Close())
	_, err = post("/stream_output", `{"id":"x"}`)
	require.Error(t, err)
	require.NoError(t, a.Close(t.Context()))
}

// waiter is a driver whose inits wait for their end.
type waiter struct {
	talker
	inits int
}

func (w *waiter) Init(ctx context.Context, _ *driver.Environment, _ driver.Ledger) error {
	w.inits++
	<-ctx.Done()
	return ctx.Err()
}

// Rule T3: a repeated setup does not start after the stage was destroyed.
func TestADestroyEndsWaitingSetups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &waiter{}
		a := New(w, Config{})
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.setup(t.Context(), &SetupRequest{})
				errs <- err
			}()
			synctest.Wait()
		}
		require.NoError(t, a.destroy(t.Context()))
		for range 2 {
			assert.ErrorContains(t, <-errs, errDestroyed.Error())
		}
		assert.Equal(t, 1, w.inits)
		require.NoError(t, a.Close(t.Context()))
	})
}
