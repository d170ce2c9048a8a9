package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

// Rule X2: a wrong budget is named, and no part of a right one is lost.
func TestBudgetsAreSettings(t *testing.T) {
	t.Parallel()
	parse := func(text string) (manager.Budget, error) {
		c := &serverCommand{}
		err := c.command(func(context.Context, map[string]string, []string) error { return nil }).
			ParseAndRun(t.Context(), []string{"--account-budget", text})
		return c.AccountBudget.Budget, err
	}
	got, err := parse("works=10, bytes=64MiB,delegates=3,schedules=4,holds=5,streams=-1")
	require.NoError(t, err)
	assert.Equal(t, manager.Budget{Works: 10, Bytes: 64 << 20, Delegates: 3, Schedules: 4, Holds: 5, Streams: -1}, got)
	for text, want := range map[string]string{"stages=1": `"stages" is unknown`, "works": "works is", "works=0": "works is", "bytes=1MB": "bytes is", "bytes=9999999999GiB": "bytes is"} {
		_, err := parse(text)
		require.ErrorContains(t, err, want)
	}
}

// Rule X2: the bound of ended stages is a size, and a wrong one is named.
func TestTheBoundOfEndedStagesIsASetting(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) (int, error) {
		c := &serverCommand{}
		err := c.command(func(context.Context, map[string]string, []string) error { return nil }).ParseAndRun(t.Context(), args)
		return int(c.MaxFinishedBytes), err
	}
	got, err := parse()
	require.NoError(t, err)
	assert.Equal(t, 64<<20, got)
	got, err = parse("--max-finished-bytes", "1GiB")
	require.NoError(t, err)
	assert.Equal(t, 1<<30, got)
	for _, text := range []string{"", "0", "-1", "64MB"} {
		_, err := parse("--max-finished-bytes", text)
		require.ErrorContains(t, err, "is not a size")
	}
}
