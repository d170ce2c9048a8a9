package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// start is a constant time for the tests.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "pipelines.db"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, testbed.Postgres(t).URL)
	})
}

func open(tb testing.TB, database string) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), database)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func newRun(id string) *store.Run {
	return &store.Run{
		Account: "a", ID: id, Pipeline: "web", Status: "RUNNING", Branch: "main", Cause: "MANUAL", Search: "Build of Web", Created: start,
		Labels: map[string]string{"team": "red"}, Definition: []byte("pipeline: {}"), State: json.RawMessage(`{"a":1}`),
	}
}

func TestAChangeAndItsMessagesAreWrittenTogetherOrNotAtAll(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		broken := errors.New("broken")
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			require.NoError(t, tx.Create(newRun("r"), []store.Node{{Path: "p", Data: json.RawMessage(`{}`)}}))
			require.NoError(t, tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: "m"}))
			return broken
		})
		require.ErrorIs(t, err, broken)
		_, _, err = s.Run(t.Context(), "a", "r")
		require.ErrorIs(t, err, store.ErrNotFound)
		none, err := s.Claim(t.Context(), "t", "o", start, time.Minute, 10)
		require.NoError(t, err)
		assert.Empty(t, none)

		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(
				tx.Create(newRun("r"), []store.Node{{Path: "p", Data: json.RawMessage(`{"x":1}`)}}),
				tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: "m", Data: []byte("d")}))
		}))
		run, nodes, err := s.Run(t.Context(), "a", "r")
		require.NoError(t, err)
		definition, err := s.Definition(t.Context(), run)
		require.NoError(t, err)
		assert.Equal(t, "pipeline: {}", string(definition))
		assert.JSONEq(t, `{"a":1}`, string(run.State))
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			for _, want := range []int64{1, 2} {
				n, err := tx.Number("a", "web")
				assert.Equal(t, want, n)
				require.NoError(t, err)
			}
			return nil
		}))
		require.Len(t, nodes, 1)
		assert.JSONEq(t, `{"x":1}`, string(nodes[0].Data))
		claimed, err := s.Claim(t.Context(), "t", "o", start, time.Minute, 10)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		assert.Equal(t, "d", string(claimed[0].Data))
		_, _, err = s.Run(t.Context(), "other", "r")
		require.ErrorIs(t, err, store.ErrNotFound, "another account must not see the run")
	})
}

func TestAClaimThatEndsGivesTheMessageToAnotherOwner(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(
				store.Message{Topic: "t", Account: "a", Run: "r", Name: "m"},
				store.Message{Topic: "t", Account: "a", Run: "r", Name: "m"}, // the name waits already
				store.Message{Topic: "t", Account: "a", Run: "r", Name: "later", Due: start.Add(time.Hour), Data: []byte("d")})
		}))
		claim := func(owner string, at time.Time) []store.Message {
			m, err := s.Claim(t.Context(), "t", owner, at, time.Minute, 10)
			require.NoError(t, err)
			return m
		}
		first := claim("1", start)
		require.Len(t, first, 1)
		assert.Empty(t, claim("2", start.Add(59*time.Second)))
		second := claim("3", start.Add(time.Minute))
		require.Len(t, second, 1)
		assert.Equal(t, 2, second[0].Tries)
		done := func(m store.Message) error {
			return s.Update(t.Context(), func(tx *store.Tx) error { return tx.Done(m) })
		}
		require.ErrorIs(t, done(first[0]), store.ErrStale)
		require.NoError(t, done(second[0]))
		next, err := s.Next(t.Context(), "t")
		require.NoError(t, err)
		assert.True(t, next.Equal(start.Add(time.Hour)), "%s", next)

		third := claim("4", start.Add(time.Hour))
		require.Len(t, third, 1)
		require.NoError(t, s.Fail(t.Context(), third[0], start.Add(2*time.Hour), errors.New("full")))
		assert.Empty(t, claim("5", start.Add(119*time.Minute)))
		third = claim("6", start.Add(2*time.Hour))
		require.Len(t, third, 1)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Bury(third[0], errors.New("broken")) }))
		assert.Empty(t, claim("7", start.Add(100*time.Hour)))
		dead, err := s.DeadLetters(t.Context(), "a", 0, 10)
		require.NoError(t, err)
		assert.Equal(t, []store.DeadLetter{{ID: third[0].ID, Account: "a", Run: "r", Topic: "t", Tries: third[0].Tries, Problem: "broken", Data: []byte("d")}}, dead)
		change := func(account string, do func(*store.Tx, string, int64) error) error {
			return s.Update(t.Context(), func(tx *store.Tx) error { return do(tx, account, third[0].ID) })
		}
		require.ErrorIs(t, change("b", (*store.Tx).Redeliver), store.ErrNotFound, "a letter of another account")
		require.ErrorIs(t, change("b", (*store.Tx).Drop), store.ErrNotFound)
		require.NoError(t, change("a", (*store.Tx).Redeliver))
		require.ErrorIs(t, change("a", (*store.Tx).Drop), store.ErrNotFound, "it is alive")
		again := claim("8", start.Add(100*time.Hour))
		require.Len(t, again, 1)
		assert.Equal(t, 1, again[0].Tries)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Bury(again[0], errors.New("broken")) }))
		require.NoError(t, change("a", (*store.Tx).Drop))
		dead, err = s.DeadLetters(t.Context(), "a", 0, 10)
		require.NoError(t, err)
		assert.Empty(t, dead)
	})
}

func TestTheMessagesOfALaneAreDeliveredInTheirOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(
				store.Message{Topic: "t", Name: "1", Lane: "x"},
				store.Message{Topic: "t", Name: "2", Lane: "x"},
				store.Message{Topic: "t", Name: "3", Lane: "y"},
				store.Message{Topic: "t", Name: "4"})
		}))
		claim := func(owner string) (names []string, all []store.Message) {
			all, err := s.Claim(t.Context(), "t", owner, start, time.Minute, 10)
			require.NoError(t, err)
			for _, m := range all {
				names = append(names, m.Name)
			}
			return names, all
		}
		names, claimed := claim("1")
		require.ElementsMatch(t, []string{"1", "3", "4"}, names)
		names, _ = claim("2")
		require.Empty(t, names, "a claimed message still holds its lane")
		woken := s.Wake("t")
		for _, m := range claimed {
			require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Done(m) }))
		}
		<-woken
		names, _ = claim("3")
		require.Equal(t, []string{"2"}, names)
	})
}

// Several stores on one database, as in several processes, change one counter. Each change must
// be there at the end, and each message must be handled once.
func TestConcurrentOwnersLoseNoChange(t *testing.T) {
	t.Parallel()
	database := testbed.Postgres(t).URL
	const messages = 200
	stores := []*store.Store{open(t, database), open(t, database), open(t, database)}
	require.NoError(t, stores[0].Update(t.Context(), func(tx *store.Tx) error {
		run := newRun("r")
		run.State = json.RawMessage(`0`)
		if err := tx.Create(run, nil); err != nil {
			return err
		}
		for i := range messages {
			if err := tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			for round := 0; ; round++ {
				claimed, err := s.Claim(t.Context(), "t", fmt.Sprintf("%d-%d", i, round), start, time.Hour, 7)
				if !assert.NoError(t, err) || len(claimed) == 0 {
					return
				}
				for _, m := range claimed {
					assert.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return count(tx, m) }))
				}
			}
		})
	}
	wg.Wait()
	run, _, err := stores[0].Run(t.Context(), "a", "r")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(messages), string(run.State))
}

// count adds one to the state of the message's run.
func count(tx *store.Tx, m store.Message) error {
	run, err := tx.Lock(m.Account, m.Run)
	if err != nil {
		return err
	}
	var n int
	if err := json.Unmarshal(run.State, &n); err != nil {
		return err
	}
	run.State = json.RawMessage(fmt.Sprint(n + 1))
	return errors.Join(tx.Save(run, nil), tx.Done(m))
}

func TestAProcessLearnsOfMessagesThatAnotherProcessSends(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	a, b := open(t, server.URL), open(t, server.URL)
	send := func(name string) {
		require.NoError(t, a.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(store.Message{Topic: "t", Account: "a", Run: "r", Name: name})
		}))
	}
	// The listener of b starts in the background, and the test has no signal for its start.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	woken := b.Wake("t")
	for i := 0; ; i++ {
		send(fmt.Sprint(i))
		select {
		case <-woken:
			return
		case <-ctx.Done():
			t.Fatal("the other process was not woken")
		default:
		}
	}
}

func TestRunsAreFoundByEachFilter(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			for i := range 7 {
				run := newRun(fmt.Sprintf("r%d", i))
				run.Created = start.Add(time.Duration(i/2) * time.Second) // two runs share each time
				run.Pipeline = []string{"web", "api"}[i%2]
				run.Branch = fmt.Sprintf("feature/%d", i)
				run.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
				run.Search = fmt.Sprintf("Change %d%% of it", i)
				if i == 3 {
					run.Status, run.Ended = "FAILED", start.Add(time.Hour)
				}
				if err := tx.Create(run, nil); err != nil {
					return err
				}
			}
			return nil
		}))
		ids := func(f store.Filter) (ids []string) {
			f.Account = "a"
			if f.Limit == 0 {
				f.Limit = 100
			}
			runs, _, err := s.Runs(t.Context(), f)
			require.NoError(t, err)
			for _, r := range runs {
				ids = append(ids, r.ID)
			}
			return ids
		}
		assert.Equal(t, []string{"r6", "r5", "r4", "r3", "r2", "r1", "r0"}, ids(store.Filter{}))
		assert.Equal(t, []string{"r5", "r3", "r1"}, ids(store.Filter{Pipeline: "api"}))
		assert.Equal(t, []string{"r3"}, ids(store.Filter{Status: "FAILED"}))
		assert.Equal(t, []string{"r2"}, ids(store.Filter{Branch: "feature/2"}))
		assert.Equal(t, []string{"r5", "r3", "r1"}, ids(store.Filter{Marks: []store.Mark{{Kind: "label", Name: "parity", Value: "1"}}}))
		assert.Equal(t, []string{"r2"}, ids(store.Filter{Text: "cHANGE 2%"}))
		assert.Len(t, ids(store.Filter{Text: "ch of"}), 7, "a word of the text may be the beginning of a word")
		assert.Empty(t, ids(store.Filter{Text: "hange"}), "but not another part of it")
		assert.Empty(t, ids(store.Filter{Text: "change 9"}))
		assert.Equal(t, []string{"r6", "r5", "r4"}, ids(store.Filter{After: start.Add(2 * time.Second)}))
		assert.Equal(t, []string{"r6", "r5"}, ids(store.Filter{Limit: 2}))
		assert.Equal(t, []string{"r4", "r3"}, ids(store.Filter{Limit: 2, Before: start.Add(2 * time.Second), BeforeID: "r5"}))
		all, _, err := s.Runs(t.Context(), store.Filter{Account: "other", Limit: 10})
		require.NoError(t, err)
		assert.Empty(t, all)

		n, err := s.ExpireRuns(t.Context(), start.Add(2*time.Hour), 10)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "active runs stay")
		assert.NotContains(t, ids(store.Filter{}), "r3")
	})
}

func TestEachStageIsRenewedByOneProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		one := store.Stage{Account: "a", ID: "s", Run: "r", Node: "n", Attempt: 2, Target: []byte("t")}
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.Track(one), tx.Track(one), tx.Opened(one.Account, one.ID, start))
		}))
		got, err := s.Stage(t.Context(), "a", "s")
		require.NoError(t, err)
		assert.Equal(t, one, got)
		renewable := func(at time.Time) []store.Stage {
			all, err := s.Renewable(t.Context(), at.Add(-20*time.Second), at, 10)
			require.NoError(t, err)
			return all
		}
		assert.Empty(t, renewable(start.Add(20*time.Second)))
		assert.Equal(t, []store.Stage{one}, renewable(start.Add(21*time.Second)))
		assert.Empty(t, renewable(start.Add(22*time.Second)))
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Untrack("a", "s") }))
		_, err = s.Stage(t.Context(), "a", "s")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestARunSurvivesAKillOfTheServer(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	s := open(t, server.URL)
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Create(newRun("r"), nil) }))
	server.Kill()
	require.Error(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Create(newRun("q"), nil) }))
	server.Start(t)
	require.ErrorIs(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Create(newRun("r"), nil) }), store.ErrExists)
}

func TestAWrongAddressShowsNoPassword(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), "mysql://user:visibly-fake@localhost/x")
	require.ErrorContains(t, err, "neither a file nor a URL that begins with postgres://")
	assert.NotContains(t, err.Error(), "visibly-fake")
}

func TestAMessageBehindAnotherOneInItsLaneIsNotDue(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Send(store.Message{Topic: "t", Name: "1", Lane: "l"}, store.Message{Topic: "t", Name: "2", Lane: "l"})
		}))
		claimed, err := s.Claim(t.Context(), "t", "o", start, time.Minute, 10)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		next, err := s.Next(t.Context(), "t")
		require.NoError(t, err)
		assert.True(t, next.Equal(start.Add(time.Minute)), "%s", next)
		following, err := s.Following(t.Context(), claimed[0])
		require.NoError(t, err)
		require.Len(t, following, 1)
		assert.Equal(t, "2", following[0].Name)
	})
}

func TestAClaimIsKeptAndReleasedByItsOwnerOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Send(store.Message{Topic: "t", Name: "1"}) }))
		claim := func(owner string, at time.Time) []store.Message {
			claimed, err := s.Claim(t.Context(), "t", owner, at, time.Minute, 10)
			require.NoError(t, err)
			return claimed
		}
		first := claim("first", start)
		require.NoError(t, s.Keep(t.Context(), first, start.Add(2*time.Minute)))
		assert.Empty(t, claim("early", start.Add(time.Minute)))
		second := claim("second", start.Add(2*time.Minute))
		require.Len(t, second, 1)
		assert.Equal(t, 2, second[0].Tries)
		require.NoError(t, s.Keep(t.Context(), first, start.Add(time.Hour)))
		require.NoError(t, s.Release(t.Context(), first))
		assert.Empty(t, claim("early again", start.Add(2*time.Minute)))
		require.NoError(t, s.Release(t.Context(), second))
		third := claim("third", start)
		require.Len(t, third, 1)
		assert.Equal(t, 2, third[0].Tries, "a release is no try")
	})
}

func TestALeaseIsRenewedOnlyAfterTheManagerHasTheStage(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		one := store.Stage{Account: "a", ID: "s", Run: "r", Node: "n", Attempt: 1, Target: []byte("t")}
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Track(one) }))
		due, err := s.Renewable(t.Context(), start.Add(1000*time.Hour), start, 10)
		require.NoError(t, err)
		assert.Empty(t, due)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error { return tx.Opened("a", "s", start) }))
		due, err = s.Renewable(t.Context(), start.Add(time.Minute), start, 10)
		require.NoError(t, err)
		assert.Equal(t, []store.Stage{one}, due)
	})
}
