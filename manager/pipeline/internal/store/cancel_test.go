package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// A transaction whose context ends has released its lock of the file when Update returns. The program beside it does not
// wait for locks.
func TestACancelledTransactionLeavesNoLock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pipelines.db")
	s := open(t, file)
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Update(ctx, func(tx *store.Tx) error {
			require.NoError(t, tx.Create(newRun(fmt.Sprintf("r%d", i)), []store.Node{{Path: "p", Data: []byte(`{}`)}}))
			cancel()
			runtime.Gosched() // the lock must not be released by another goroutine
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		_, err = db.ExecContext(t.Context(), `DELETE FROM numbers`)
		require.NoError(t, err)
	}
}
