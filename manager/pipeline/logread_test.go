package pipeline

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/logger"
)

// cutLogs is a log service whose connections end after each line.
type cutLogs struct{ lines int64 }

func (c cutLogs) Lines(_ context.Context, _, _ string, from int64, _ bool) iter.Seq2[logger.Line, error] {
	return func(yield func(logger.Line, error) bool) {
		if from < c.lines && yield(logger.Line{Pos: from}, nil) {
			yield(logger.Line{}, errors.New("the connection was lost"))
		}
	}
}

func TestALogOfThePastIsReadOverManyLostConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // without the pauses
		f := &logFollower{service: &Service{cfg: Config{Logs: cutLogs{lines: 3 * mostReads}}}, wake: make(chan struct{}, 1)}
		l := &runLog{settled: true, quiet: time.Now(), space: make(chan struct{}, 1)}
		f.read(t.Context(), l, 0)
		assert.Empty(t, l.problem)
		assert.Len(t, l.Lines, 3*mostReads)
	})
}
